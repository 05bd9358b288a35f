//! Streams on long paths, and to peers that are slow.

use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use xk_world::{PROTOCOLS, Result, TcpListener, TcpStream, World};

const LONG_FAT: &str = r#"
link lan delay="100ms" rate="100Mbit" queue=4000
host server { sim link=lan; eth sim; arp eth; ip arp { address "10.0.0.1/24"; }; tcp ip; udp ip; icmp ip; }
host client { sim link=lan; eth sim; arp eth; ip arp { address "10.0.0.2/24"; }; tcp ip; udp ip; icmp ip; }
"#;

/// 2.5 MB are on their way at 100 Mbit/s and 200 ms: buffers grow to that, untold.
#[test]
fn a_long_fat_path_is_filled() {
    const OCTETS: usize = 60_000_000;
    let mut world = World::from_text(1, LONG_FAT, PROTOCOLS).unwrap();
    world
        .host("server", |stack| async move {
            let (mut stream, _) = TcpListener::bind(&stack, "0.0.0.0:9")?.accept().await?;
            let mut block = vec![0; 65_536];
            while stream.read(&mut block).await? > 0 {}
            stream.write_u8(1).await?;
            std::future::pending::<Result>().await
        })
        .unwrap();
    world
        .client("client", |stack| async move {
            let mut stream = TcpStream::connect(&stack, "server:9").await?;
            let begin = tokio::time::Instant::now();
            for _ in 0..60 {
                stream.write_all(&vec![0; OCTETS / 60]).await?;
            }
            stream.shutdown().await?;
            stream.read_u8().await?;
            let mbit_s = OCTETS as f64 * 8.0 / begin.elapsed().as_secs_f64() / 1e6;
            println!("{mbit_s:.1} Mbit/s");
            assert!(mbit_s > 60.0, "{mbit_s} Mbit/s");
            Result::Ok(())
        })
        .unwrap();
    world.run(Duration::from_secs(300)).unwrap();
}

/// A reader that pauses answers each probe of its window, so the user timeout does not count.
#[test]
fn a_user_timeout_spares_a_reader_that_pauses() {
    const OCTETS: usize = 20_000_000;
    let mut world = World::lan(1, &["writer", "reader"], r#"delay="5ms""#).unwrap();
    world
        .host("writer", |stack| async move {
            let (mut stream, _) = TcpListener::bind(&stack, "0.0.0.0:7")?.accept().await?;
            let limit = xk_net::StreamSetting::UserTimeout(Some(Duration::from_secs(20)));
            stream.get_ref().set(limit)?;
            stream.write_all(&vec![5; OCTETS]).await?;
            stream.shutdown().await?;
            std::future::pending::<Result>().await
        })
        .unwrap();
    world
        .client("reader", |stack| async move {
            let mut stream = TcpStream::connect(&stack, "writer:7").await?;
            tokio::time::sleep(Duration::from_secs(120)).await;
            assert_eq!(stream.read_to_end(&mut Vec::new()).await?, OCTETS);
            Result::Ok(())
        })
        .unwrap();
    world.run(Duration::from_secs(600)).unwrap();
}
