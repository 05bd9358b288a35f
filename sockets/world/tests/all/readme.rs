use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy, split};
use xk_world::{Result, TcpListener, TcpStream, World};

#[test]
fn what_is_sent_comes_back_though_a_twentieth_is_lost() {
    xk_world::seeds(0..20, |seed| {
        let mut world = World::lan(seed, &["server", "client"], r#"delay="5ms" loss="5%""#)?;
        world.host("server", |stack| async move {
            let listener = TcpListener::bind(&stack, "0.0.0.0:7")?;
            let (mut read, mut write) = split(listener.accept().await?.0);
            Ok(copy(&mut read, &mut write).await.map(drop)?)
        })?;
        world.client("client", |stack| async move {
            let mut stream = TcpStream::connect(&stack, "server:7").await?;
            stream.write_all(b"hello").await?;
            assert_eq!(stream.read_u8().await?, b'h');
            Result::Ok(())
        })?;
        world.run(Duration::from_secs(60))
    });
}
