//! The socket on both ends of a veth pair, and the wire against the host's own stack.

mod bare;
mod scene;
mod wire;

use std::process::ExitCode;

use xk_testkit::peer;

fn main() -> ExitCode {
    peer::main(&[
        ("bare::frames_cross_both_ways", bare::frames_cross_both_ways),
        ("bare::a_burst_comes_whole", bare::a_burst_comes_whole),
        ("bare::frames_return_from_their_place", bare::frames_return_from_their_place),
        ("bare::the_program_takes_what_is_ours", bare::the_program_takes_what_is_ours),
        ("bare::frames_of_others_reach_linux", bare::frames_of_others_reach_linux),
        ("bare::binds_again_at_once", bare::binds_again_at_once),
        ("bare::impossible_frames_are_refused", bare::impossible_frames_are_refused),
        ("bare::errors_tell_the_case", bare::errors_tell_the_case),
        ("wire::keeps_the_laws", wire::keeps_the_laws),
        ("wire::frames_are_messages_where_they_lie", wire::frames_are_messages_where_they_lie),
        ("wire::arrivals_leave_the_pool_room", wire::arrivals_leave_the_pool_room),
        ("wire::impossible_settings_are_told", wire::impossible_settings_are_told),
    ])
}
