//! Laws of shepherds on every switch: one suite, run over each.

mod bounds;
mod endings;
mod order;
mod random;
mod threads_unsafe;
mod waits;
mod world;

macro_rules! suite {
    ($($module:ident::$test:ident,)*) => {
        mod coroutine {
            $(#[test] fn $test() {
                crate::$module::$test(&|| Box::new(xk_run::switch::CoroutineSwitch::new()));
            })*
        }
        mod thread {
            $(#[test] fn $test() {
                crate::$module::$test(&|| Box::new(crate::threads_unsafe::switch()));
            })*
        }
    };
}

suite! {
    order::a_message_that_never_blocks_costs_no_shepherd,
    order::the_loop_goes_on_while_a_message_waits,
    order::waiters_are_served_in_order,
    order::ready_shepherds_are_resumed_in_order,
    order::a_resumed_shepherd_leaves_the_loop_to_its_leader,
    order::a_shepherd_keeps_its_thread_and_stack,
    order::a_resumed_shepherd_may_block_again,
    order::the_loop_goes_on_where_a_message_ended,
    order::pooled_shepherds_are_used_again,
    waits::a_signal_before_the_wait_is_kept,
    waits::the_first_to_come_decides,
    waits::a_timed_out_waiter_takes_no_signal,
    waits::a_stale_ticket_is_harmless,
    waits::closing_ends_present_and_later_waits,
    waits::an_interrupt_ends_present_waits_only,
    waits::arming_may_decide_the_wait,
    waits::arming_cannot_wait,
    waits::a_panic_while_arming_gives_the_place_up,
    bounds::one_shepherd_more_is_refused,
    bounds::a_lone_shepherd_never_waits,
    bounds::hundreds_wait_at_once,
    bounds::those_in_reserve_are_used_again,
    endings::suspended_shepherds_outlive_a_run,
    endings::a_resumed_shepherd_can_stop_the_loop,
    endings::the_loop_does_not_run_within_itself,
    endings::a_panic_reaches_the_caller_of_run,
    endings::a_panic_of_a_resumed_shepherd_reaches_the_caller_of_run,
    endings::a_panic_passes_through_those_in_reserve,
    endings::a_resumed_shepherd_goes_on_with_the_body_of_the_present_run,
    endings::an_interrupted_kernel_leaves_nothing_behind,
    endings::a_shepherd_is_suspended_only_by_itself,
    endings::one_that_rests_in_a_resume_is_left_alone,
    random::every_wait_ends_once_and_no_signal_is_lost,
}
