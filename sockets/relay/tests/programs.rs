//! Unmodified programs on a stack: what they see is what they would see of Linux.

mod common;

use common::{relay, run, start};
use xk_testkit::needs_program;

/// A script of `programs` that goes through to the end says so in this word.
macro_rules! scripts {
    ($($name:ident $said:literal)*) => {$(
        #[test]
        fn $name() {
            needs_program!("python3");
            let (_stack, relay) = relay();
            let script = include_str!(concat!("programs/", stringify!($name), ".py"));
            assert_eq!(run(&relay, "python3", &["-c", script]), concat!($said, "\n"));
        }
    )*};
}

scripts! {
    a_server_and_a_client_speak "spoken"
    errors_are_those_of_linux "right"
    a_connection_in_the_making_is_polled "polled"
    a_child_has_its_parents_sockets "born"
    datagrams_keep_their_boundaries_and_senders "kept"
    a_stream_that_is_reset_says_so "said"
    an_option_is_taken_unless_it_would_be_missed "taken"
    control_messages_of_datagrams_are_those_of_linux "told"
    a_burst_up_to_the_backlog_is_taken_at_once "taken"
    loopback_is_linux "linux"
    as_many_wait_as_the_program_says "waited"
    a_receive_buffer_bounds_a_stream "bounded"
    groups_are_joined_and_left_as_on_linux "joined"
}

#[test]
fn curl_fetches_from_pythons_server() {
    needs_program!("curl", "python3");
    let (_stack, relay) = relay();
    let folder = std::env::temp_dir().join(format!("xk-curl-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let content: String = (0..100_000).map(|n| format!("{n}\n")).collect();
    std::fs::write(folder.join("numbers"), &content).unwrap();
    let directory = folder.display().to_string();
    let serve = ["-m", "http.server", "8000", "-b", "10.0.0.1", "-d", &directory];
    let mut server = start(&relay, "python3", &serve);
    let url = "http://10.0.0.1:8000/numbers";
    let retry = ["-sS", "--retry", "100", "--retry-connrefused", "--retry-delay", "1", url];
    let fetched = run(&relay, "curl", &retry);
    server.kill().unwrap();
    server.wait().unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    assert!(fetched == content, "{} octets", fetched.len());
}
