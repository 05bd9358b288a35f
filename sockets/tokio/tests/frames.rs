//! Graphs over what tasks have, and tasks over what graphs have, in real time.

use bytes::Bytes;
use futures_core::Stream;
use futures_sink::Sink;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use xk_net::{Entry, Setup};
use xk_tokio::frames::{ABOVE, BELOW};
use xk_tokio::{Datagrams, Frames, Stack, TcpListener, TcpStream, UdpSocket};

fn run<F: Future<Output = io::Result<()>>>(work: F) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let within = Duration::from_secs(30);
    let done = runtime.block_on(async { tokio::time::timeout(within, work).await });
    done.expect("it ends").expect("it does");
}

fn entries() -> Vec<&'static Entry> {
    [xk_catalog::PROTOCOLS, &[&BELOW, &ABOVE]].concat()
}

/// A host on a wire whose other end `frames` are.
fn host(frames: &Frames, number: u8, above: &str) -> io::Result<Stack> {
    let end = frames.end();
    let graph = format!(
        "host one {{ task end={end} address=\"02:00:00:00:00:0{number}\"
            eth task; arp eth; ip arp {{ address \"10.0.0.{number}/24\"; }}; icmp ip
            tcp ip; udp ip; {above} }}"
    );
    Setup::from_text(graph, &entries()).thread()
}

async fn next<S: Stream + Unpin>(stream: &mut S) -> Option<S::Item> {
    poll_fn(|cx| Pin::new(&mut *stream).poll_next(cx)).await
}

async fn give<T, S: Sink<T, Error = io::Error> + Unpin>(sink: &mut S, item: T) -> io::Result<()> {
    poll_fn(|cx| Pin::new(&mut *sink).poll_ready(cx)).await?;
    Pin::new(&mut *sink).start_send(item)?;
    poll_fn(|cx| Pin::new(&mut *sink).poll_flush(cx)).await
}

async fn talk(here: &Stack, there: &Stack) -> io::Result<()> {
    let listener = TcpListener::bind(there, "10.0.0.2:7")?;
    let echoes = async {
        let (stream, _) = listener.accept().await?;
        let (mut from, mut into) = tokio::io::split(stream);
        tokio::io::copy(&mut from, &mut into).await?;
        into.shutdown().await
    };
    let asks = async {
        let stream = TcpStream::connect(here, "10.0.0.2:7").await?;
        let (mut from, mut into) = tokio::io::split(stream);
        let sent: Vec<u8> = (0..300_000_u32).map(|at| (at ^ at >> 8) as u8).collect();
        let mut back = Vec::new();
        let writes = async {
            into.write_all(&sent).await?;
            into.shutdown().await
        };
        tokio::try_join!(writes, from.read_to_end(&mut back))?;
        assert!(back == sent);
        Ok(())
    };
    tokio::try_join!(echoes, asks).map(drop)
}

#[test]
fn two_stacks_talk_over_a_stream_of_octets() {
    run(async {
        let (one, other) = (Frames::new()?, Frames::new()?);
        let (here, there) = (host(&one, 1, "")?, host(&other, 2, "")?);
        let (left, right) = tokio::io::duplex(10_000);
        let carried = async { tokio::try_join!(one.carry(left), other.carry(right)).map(drop) };
        tokio::select! {
            biased;
            done = talk(&here, &there) => done,
            ended = carried => panic!("{ended:?}"),
        }
    });
}

#[test]
fn two_stacks_talk_over_streams_and_sinks_of_frames() {
    run(async {
        let (mut one, mut other) = (Frames::new()?, Frames::new()?);
        let (here, there) = (host(&one, 1, "")?, host(&other, 2, "")?);
        let cable = async {
            loop {
                let (from, frame) = tokio::select! {
                    frame = next(&mut one) => (1, frame),
                    frame = next(&mut other) => (2, frame),
                };
                let frame = frame.expect("neither has ended");
                give(if from == 1 { &mut other } else { &mut one }, frame).await?;
            }
        };
        tokio::select! {
            biased;
            done = talk(&here, &there) => done,
            ended = cable => ended,
        }
    });
}

#[test]
fn a_session_is_a_stream_and_a_sink_of_frames() {
    run(async {
        let (one, other) = (Frames::new()?, Frames::new()?);
        let (mut asks, mut answers) = (Frames::new()?, Frames::new()?);
        let above = format!("task-top udp end={} to=\"port9@10.0.0.2\"", asks.end());
        let _here = host(&one, 1, &above)?;
        let above = format!("task-top udp end={} local=\"port9\"", answers.end());
        let _there = host(&other, 2, &above)?;
        let (left, right) = tokio::io::duplex(10_000);
        let carried = async { tokio::try_join!(one.carry(left), other.carry(right)).map(drop) };
        let talk = async {
            for turn in 0..100_u8 {
                give(&mut asks, Bytes::from(vec![turn; 100])).await?;
                let frame = next(&mut answers).await.expect("it stands");
                give(&mut answers, frame).await?;
                assert_eq!(next(&mut asks).await.expect("it stands"), vec![turn; 100]);
            }
            Ok(())
        };
        tokio::select! {
            biased;
            done = talk => done,
            ended = carried => ended,
        }
    });
}

#[test]
fn datagrams_are_a_stream_and_a_sink() {
    run(async {
        let graph = r#"host alone {
            loopback; ip loopback { address "10.0.0.1/24"; }; icmp ip; udp ip }"#;
        let stack = Setup::from_text(graph, xk_catalog::PROTOCOLS).thread()?;
        let mut one = Datagrams::from(UdpSocket::bind(&stack, "10.0.0.1:0")?);
        let mut other = Datagrams::from(UdpSocket::bind(&stack, "10.0.0.1:0")?);
        let to = other.get_ref().local_addr()?;
        for turn in 0..50_u8 {
            give(&mut one, (Bytes::from(vec![turn; 1000]), to)).await?;
            let (octets, from) = next(&mut other).await.expect("it does not end")?;
            give(&mut other, (octets, from)).await?;
            let (octets, _) = next(&mut one).await.expect("it does not end")?;
            assert_eq!(octets, vec![turn; 1000]);
        }
        Ok(())
    });
}

#[test]
fn what_lies_is_refused_and_what_ends_is_told() {
    run(async {
        let frames = Frames::new()?;
        let stack = host(&frames, 1, "")?;
        for (octets, kind) in [
            (&[0xff, 0xff, 0xff, 0xff][..], io::ErrorKind::InvalidData),
            (&[0, 0, 0, 0], io::ErrorKind::InvalidData),
            (&[0x80, 0], io::ErrorKind::UnexpectedEof),
            (&[0x80, 0, 0, 9, 1, 2], io::ErrorKind::UnexpectedEof),
        ] {
            let (here, mut there) = tokio::io::duplex(100);
            there.write_all(octets).await?;
            drop(there);
            let error = frames.carry(here).await.expect_err("it lies");
            assert_eq!(error.kind(), kind, "{octets:?}");
        }
        let (here, there) = tokio::io::duplex(100);
        drop(there);
        frames.carry(here).await?;
        drop(stack);
        while frames.recv().await.is_some() {}
        assert!(frames.send(&b"late"[..]).await.is_err());
        let unknown = Setup::from_text("host one { task end=1000000 }", &entries()).thread();
        assert!(unknown.err().expect("no such end").to_string().contains("Frames::end"));
        Ok(())
    });
}
