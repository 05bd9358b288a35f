//! One process gives links to many at one path.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use xk_shm::{Entrance, Link, Lost, Options, Peers, ShmError, remove_left};

fn path(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("xk-entrance-{name}-{}", std::process::id()))
}

/// Lets others in until `enough` links were given or none has come for long.
fn admit(entrance: &mut Entrance, room: bool, enough: usize) -> Vec<Link> {
    let (mut links, until) = (Vec::new(), Instant::now() + Duration::from_secs(20));
    while links.len() < enough && Instant::now() < until {
        links.extend(entrance.step(Instant::now(), room));
        std::thread::sleep(Duration::from_millis(1));
    }
    links
}

#[test]
fn many_come_and_each_has_a_link_of_its_own() {
    let (path, options) = (path("many"), Options::default());
    let mut entrance = Entrance::new(&path, &options).unwrap();
    assert!(matches!(Entrance::new(&path, &options), Err(ShmError::Taken { .. })));
    let comers: Vec<_> = (0..4_u8)
        .map(|number| {
            let (path, options) = (path.clone(), options.clone());
            std::thread::spawn(move || {
                let mut link = Link::connect(&path, &options)?;
                link.send(&[number]).unwrap();
                link.flush();
                let mut echo = [0; 2];
                while link.receive(&mut echo).unwrap().is_none() {
                    link.wait(None).unwrap();
                }
                Ok::<_, ShmError>(echo)
            })
        })
        .collect();
    let mut links = admit(&mut entrance, true, 4);
    assert_eq!(links.len(), 4);
    for link in &mut links {
        assert_eq!(link.peer().pid, std::process::id() as i32);
        let mut octets = [0; 2];
        while link.receive(&mut octets).unwrap().is_none() {
            link.wait(None).unwrap();
        }
        link.send(&[octets[0], 7]).unwrap();
        link.flush();
    }
    for (number, comer) in comers.into_iter().enumerate() {
        assert_eq!(comer.join().unwrap().unwrap(), [number as u8, 7]);
    }
    // Its end is seen, by the set too.
    for link in &links {
        let until = Instant::now() + Duration::from_secs(20);
        while link.check() == Ok(()) && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(link.check(), Err(Lost::Gone));
    }
    drop(entrance);
    assert!(matches!(Link::connect(&path, &options), Err(ShmError::Nobody { .. })));
    assert!(!path.exists());
}

#[test]
fn only_those_listed_are_let_in_and_only_while_there_is_room() {
    let path = path("listed");
    let uid = rustix::process::geteuid().as_raw();
    let gid = rustix::process::getegid().as_raw();
    let listed =
        |uids: &[u32], gids: &[u32]| Peers::Listed { uids: uids.into(), gids: gids.into() };
    for (peers, room, may) in [
        (listed(&[uid + 1], &[gid + 1]), true, false),
        (listed(&[], &[]), true, false),
        (listed(&[uid], &[]), true, true),
        (listed(&[], &[gid + 1, gid]), true, true),
        (Peers::User(uid), true, true),
        (Peers::Any, true, true),
        (Peers::Any, false, false),
    ] {
        let options = Options { peers: peers.clone(), ..Options::default() };
        let mut entrance = Entrance::new(&path, &options).unwrap();
        let at = path.clone();
        let comer = std::thread::spawn(move || {
            let any = Options { peers: Peers::Any, ..Options::default() };
            Link::connect(&at, &any)
        });
        let mut links = Vec::new();
        while !comer.is_finished() {
            links.extend(entrance.step(Instant::now(), room));
            std::thread::sleep(Duration::from_millis(1));
        }
        let came = comer.join().unwrap();
        assert_eq!(came.is_ok(), may, "{peers:?}");
        assert_eq!(links.len(), usize::from(may), "{peers:?}");
        if let Err(error) = came {
            assert!(matches!(error, ShmError::Refused(_)), "{peers:?}: {error}");
            let told = entrance.take_error().expect("it says so").to_string();
            assert!(told.contains("peer_uid") || !room, "{told}");
        }
    }
}

/// A path is trusted only where no other user can put a socket.
#[test]
fn a_path_is_believed_where_no_other_user_may_write() {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    let own = rustix::process::geteuid().as_raw();
    let folder = path("believed");
    std::fs::create_dir(&folder).unwrap();
    let socket = folder.join("socket");
    std::fs::write(&socket, []).unwrap();
    // Only root can give a file away; else the owner is this user all the same.
    let _ = std::os::unix::fs::chown(&socket, Some(70_001), None);
    let owner = std::fs::metadata(&socket).unwrap().uid();
    for (mode, believed) in [(0o755, true), (0o700, true), (0o775, false), (0o1777, false)] {
        std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(mode)).unwrap();
        let peers = Peers::at(&socket);
        let admits = |uid| peers.admit(&xk_shm::Peer { uid, gid: 70_009, pid: 1 });
        assert!(admits(0) && admits(own) && !admits(70_002), "{mode:o}");
        assert_eq!(admits(owner), believed || owner == own, "{mode:o}");
    }
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn what_a_dead_process_has_left_goes_and_nothing_else() {
    let (path, options) = (path("left"), Options::default());
    let lock = PathBuf::from(format!("{}.lock", path.display()));
    let entrance = Entrance::new(&path, &options).unwrap();
    remove_left(&path);
    assert!(path.exists() && lock.exists(), "one listens there");
    drop(entrance);
    assert!(!path.exists() && !lock.exists());
    // Bound by something else, which has no lock.
    let other = std::os::unix::net::UnixListener::bind(&path).unwrap();
    remove_left(&path);
    assert!(path.exists() && !lock.exists());
    drop(other);
    std::fs::write(&lock, "").unwrap();
    remove_left(&path);
    assert!(!path.exists() && !lock.exists(), "as a killed process leaves it");
    std::fs::write(&path, "mine").unwrap();
    std::fs::write(&lock, "").unwrap();
    remove_left(&path);
    assert_eq!(std::fs::read(&path).unwrap(), b"mine", "no socket");
    std::fs::remove_file(&path).unwrap();
    std::fs::remove_file(&lock).unwrap();
}
