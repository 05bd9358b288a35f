//! The list of behaviours of OpenSS7's test of STREAMS (`test-streams`, 541 cases by name), group
//! by group: how many of them are covered and by which tests, how many do not apply and why, how
//! many are missing. Nothing of it but names and numbers of cases is taken.

/// A group of cases: its name, covered, not applicable, missing, the tests, and the reason.
type Row = (&'static str, [u32; 3], &'static [&'static str], &'static str);

/// There is no address that a call could not read: it lends a slice.
const SLICES: &str = "EFAULT: a call lends a slice, which is there";
const EACH: &str = "each_call_says_what_is_wrong_with_the_stream";
const SIDES: &str = "an_error_for_one_side_fails_the_calls_of_that_side";

const LIST: &[Row] = &[
    ("guard timer of the test", [0, 1, 0], &[], "the test's own"),
    ("open, close", [4, 0, 0], &["streams_are_opened_and_closed"], ""),
    ("I_NREAD", [4, 1, 0], &["figures_are_told", EACH], SLICES),
    ("I_PUSH", [11, 1, 0], &["modules_are_pushed_popped_and_listed", EACH], SLICES),
    ("I_POP", [8, 0, 0], &["modules_are_pushed_popped_and_listed", EACH], ""),
    ("I_LOOK", [7, 1, 0], &["modules_are_pushed_popped_and_listed", EACH], SLICES),
    ("I_FLUSH", [10, 0, 0], &["a_flush_goes_round_once", EACH], ""),
    ("I_SRDOPT", [15, 0, 0], &["read_keeps_or_drops_the_rest_of_a_message", EACH], ""),
    ("I_GRDOPT", [15, 1, 0], &["read_keeps_or_drops_the_rest_of_a_message"], SLICES),
    (
        "I_STR",
        [10, 1, 0],
        &["commands_go_to_the_driver", "a_command_without_an_answer_ends_after_15_s", EACH],
        SLICES,
    ),
    (
        "I_SETSIG",
        [23, 0, 0],
        &["signals_are_told_of_what_is_asked_for", "each_event_is_told", EACH],
        "",
    ),
    ("I_GETSIG", [7, 1, 0], &["signals_are_told_of_what_is_asked_for"], SLICES),
    ("I_FIND", [10, 0, 0], &["modules_are_pushed_popped_and_listed", EACH], ""),
    (
        "I_LINK",
        [10, 0, 0],
        &["a_stream_is_linked_used_and_unlinked", "what_cannot_be_linked_is_refused", EACH],
        "",
    ),
    ("I_UNLINK", [6, 0, 0], &["a_stream_is_linked_used_and_unlinked", EACH], ""),
    ("I_RECVFD", [8, 0, 0], &["a_stream_is_passed_and_lives_until_both_let_go", EACH, SIDES], ""),
    ("I_PEEK", [9, 0, 0], &["getmsg_takes_parts_and_leaves_the_rest", EACH, SIDES], ""),
    ("I_FDINSERT", [20, 2, 0], &["another_stream_is_named_in_a_message", EACH], SLICES),
    ("I_SENDFD", [6, 0, 0], &["a_stream_is_passed_and_lives_until_both_let_go", EACH], ""),
    (
        "I_GETPMSG, I_PUTPMSG, I_GETMSG and others as commands",
        [16, 12, 0],
        &["high_priority_and_bands_are_chosen", "what_is_written_to_one_end_comes_up_at_the_other"],
        "I_FATTACH, I_FDETACH, I_AUTOPUSH, I_ANCHOR and commands of that implementation: there is \
         no file system and no second form of a call",
    ),
    (
        "I_SWROPT",
        [7, 7, 0],
        &["a_write_of_nothing_sends_one_or_none", EACH],
        "SNDPIPE and SNDHOLD: there are no signals of a process, and no write is held back",
    ),
    (
        "I_GWROPT",
        [8, 7, 0],
        &["a_write_of_nothing_sends_one_or_none", EACH],
        "as I_SWROPT, and EFAULT",
    ),
    ("I_LIST", [6, 0, 0], &["modules_are_pushed_popped_and_listed", EACH], ""),
    ("I_PLINK", [9, 0, 0], &["links_go_with_the_stream_unless_they_are_to_stay", EACH], ""),
    ("I_PUNLINK", [6, 0, 0], &["links_go_with_the_stream_unless_they_are_to_stay", EACH], ""),
    ("I_FLUSHBAND", [14, 1, 0], &["a_flush_goes_round_once", EACH], SLICES),
    ("I_CKBAND", [8, 0, 0], &["high_priority_and_bands_are_chosen", EACH], ""),
    ("I_GETBAND", [9, 0, 0], &["high_priority_and_bands_are_chosen", EACH], ""),
    (
        "I_ATMARK",
        [6, 0, 0],
        &["figures_are_told", "marks_are_the_first_message_s_or_the_last", EACH],
        "",
    ),
    ("I_SETCLTIME", [10, 1, 0], &["figures_are_told", EACH], SLICES),
    ("I_GETCLTIME", [6, 1, 0], &["figures_are_told", EACH], SLICES),
    ("I_CANPUT", [13, 0, 0], &["bands_say_whether_one_has_room", EACH], ""),
    ("I_SERROPT", [10, 0, 0], &["an_error_passes_where_it_is_to", EACH], ""),
    ("I_GERROPT", [6, 1, 0], &["an_error_passes_where_it_is_to", EACH], SLICES),
    (
        "transparent ioctls",
        [6, 0, 0],
        &[
            "a_driver_copies_in_and_out_of_what_the_call_lends",
            "what_is_not_lent_is_refused_and_the_driver_hears_of_it",
        ],
        "",
    ),
    (
        "read",
        [23, 1, 0],
        &[
            "read_takes_a_stream_of_octets",
            "read_keeps_or_drops_the_rest_of_a_message",
            "read_and_control_of_protocols",
            "readers_wait_on_shepherds_and_others_go_on",
            EACH,
            SIDES,
        ],
        SLICES,
    ),
    ("readv", [0, 11, 0], &[], "one slice: what is left of a message is there for the next read"),
    (
        "write",
        [15, 1, 0],
        &[
            "write_cuts_at_the_largest_packet",
            "a_write_of_nothing_sends_one_or_none",
            "writers_are_stopped_at_the_mark_and_go_on_below_the_other",
            EACH,
            SIDES,
        ],
        SLICES,
    ),
    ("writev", [0, 11, 0], &[], "one slice"),
    (
        "getmsg",
        [22, 3, 0],
        &["getmsg_takes_parts_and_leaves_the_rest", "a_hang_up_lets_what_came_be_read", EACH],
        "EFAULT, ENOSTR and ENODEV: what is called is a stream",
    ),
    (
        "getpmsg",
        [31, 3, 0],
        &["high_priority_and_bands_are_chosen", "getmsg_takes_parts_and_leaves_the_rest", EACH],
        "EFAULT, ENOSTR and ENODEV",
    ),
    ("putmsg", [18, 1, 0], &["putmsg_sends_parts", EACH, SIDES], SLICES),
    ("putpmsg", [18, 1, 0], &["putmsg_sends_parts", EACH, SIDES], SLICES),
    ("isastream", [0, 3, 0], &[], "a stream is a type of its own"),
    (
        "poll",
        [15, 2, 0],
        &["poll_tells_what_is_there", "readers_wait_on_shepherds_and_others_go_on"],
        "EFAULT; POLLMSG: a signal among the data is told to the handler at once",
    ),
];

/// The texts that tests are looked up in.
const TEXTS: [&str; 7] = [
    include_str!("calls.rs"),
    include_str!("ioctls.rs"),
    include_str!("multiplexors.rs"),
    include_str!("pipes.rs"),
    include_str!("reading.rs"),
    include_str!("transparent.rs"),
    include_str!("writing.rs"),
];

#[test]
fn each_case_of_the_list_is_covered_or_said_not_to_be() {
    let mut sums = [0; 3];
    for (group, counts, tests, reason) in LIST {
        sums.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
        assert_eq!(counts[1] + counts[2] > 0, !reason.is_empty(), "{group}");
        assert_eq!(counts[0] > 0, !tests.is_empty(), "{group}");
        for test in *tests {
            let line = format!("fn {test}()");
            assert!(TEXTS.iter().any(|text| text.contains(&line)), "{group}: {test}");
        }
    }
    assert_eq!(sums.iter().sum::<u32>(), 541);
    let [covered, not_applicable, missing] = sums;
    let said = format!("{covered} covered, {not_applicable} do not apply, {missing} missing");
    let document = include_str!("../../../../docs/subsystems.md");
    assert!(document.contains(&said), "docs/subsystems.md should say: {said}");
}
