//! Tasks that carry frames between two simulated hosts, on whose graphs they are the wire.

use std::time::Duration;
use xk_tokio::Frames;
use xk_tokio::frames::BELOW;
use xk_world::{PROTOCOLS, Result, TcpListener, TcpStream, World};

/// `inner` is behind `outer`, to which its frames come as records on a stream between tasks.
#[test]
fn a_graph_stands_on_a_stream_of_tasks_whatever_the_seed() {
    xk_world::seeds(0..5, |seed| {
        let (one, other) = (Frames::new()?, Frames::new()?);
        let host = |name: &str, frames: &Frames, number: u8| {
            format!(
                "host {name} {{
                    sim link=lan; eth sim name=le; arp le name=la
                    ip la name=outer {{ address \"192.0.2.{number}/24\"; }}
                    tcp outer name=below
                    task end={end} address=\"02:00:00:00:01:0{number}\"
                    eth task; arp eth; ip arp name=inner {{ address \"10.0.0.{number}/24\"; }}
                    udp inner; }}\n",
                end = frames.end(),
            )
        };
        let text = format!(
            "link lan delay=\"5ms\" loss=\"5%\"\n{}{}",
            host("server", &one, 1),
            host("client", &other, 2)
        );
        let entries = [PROTOCOLS, &[&BELOW]].concat();
        let mut world = World::from_text(seed, &text, &entries)?;
        let frames = std::rc::Rc::new(one);
        world.host("server", move |stack| {
            let frames = std::rc::Rc::clone(&frames);
            async move {
                let listener = TcpListener::bind(&stack, "0.0.0.0:4000")?;
                let socket = xk_world::UdpSocket::bind(&stack, "10.0.0.1:7")?;
                let echoes = async {
                    let mut room = [0; 2000];
                    while let Ok((octets, from)) = socket.recv_from(&mut room).await {
                        socket.send_to(&room[..octets], from).await?;
                    }
                    std::io::Result::Ok(())
                };
                let carried = async { frames.carry(listener.accept().await?.0).await };
                tokio::try_join!(carried, echoes)?;
                Result::Ok(())
            }
        })?;
        let frames = std::rc::Rc::new(other);
        world.client("client", move |stack| {
            let frames = std::rc::Rc::clone(&frames);
            async move {
                let stream = TcpStream::connect(&stack, "192.0.2.1:4000").await?;
                let socket = xk_world::UdpSocket::bind(&stack, "10.0.0.2:0")?;
                let asks = async {
                    for turn in 0..20_u8 {
                        socket.send_to(&[turn; 500], "10.0.0.1:7".parse().unwrap()).await?;
                        let mut room = [0; 2000];
                        let (octets, _) = socket.recv_from(&mut room).await?;
                        assert_eq!(room[..octets], [turn; 500]);
                    }
                    std::io::Result::Ok(())
                };
                tokio::select! {
                    biased;
                    done = asks => done?,
                    ended = frames.carry(stream) => panic!("{ended:?}"),
                }
                Result::Ok(())
            }
        })?;
        world.run(Duration::from_secs(120))
    });
}
