//! The library against replicas that answer by a script.
//!
//! Each case of `cases.json` is a test of each language: what the replicas answer, what the
//! driver does, and what must come of it. To add a case, write it there, and add its name below.

mod call;
mod checks;
mod counter;
mod kept;
mod player;
mod rests;
mod script;
mod stage;

use std::collections::BTreeSet;

use super::language::for_each_case;
use script::Case;

for_each_case!(
    a_refill_takes_a_batch_from_memory_without_ids,
    a_refill_above_10000_reserves_a_block,
    a_refill_of_10000_is_still_a_batch,
    all_ranges_of_a_reply_are_given_in_their_order,
    ranges_of_single_numbers_are_given,
    numbers_of_a_step_above_one_are_given_by_the_step,
    a_block_of_a_step_above_one_is_counted_by_the_step,
    a_name_with_all_characters_is_called_as_it_is,
    the_next_block_is_prefetched_before_the_current_one_is_used_up,
    callers_go_on_while_a_prefetch_is_under_way,
    many_callers_share_one_refill,
    after_a_slow_refill_the_next_one_starts_earlier,
    blocks_are_used_in_the_order_in_which_they_came,
    threads_at_once_never_get_a_number_twice,
    the_first_size_is_an_option,
    a_fast_caller_gets_larger_blocks,
    a_size_refused_by_400_is_asked_again_as_the_limit_says,
    a_size_refused_by_409_is_asked_again_as_the_limit_says,
    a_size_refused_by_429_is_asked_again_as_the_limit_says,
    a_block_that_is_too_large_is_asked_again_as_a_batch,
    a_limit_is_taken_only_once,
    a_refused_size_without_a_limit_is_final,
    without_the_right_to_blocks_refills_are_batches,
    with_a_format_no_refill_is_above_10000,
    a_caller_gives_up_at_its_deadline_and_the_refill_goes_on,
    all_callers_that_wait_give_up_at_their_deadline,
    callers_get_numbers_in_the_order_in_which_they_began_to_wait,
    more_callers_than_numbers_wait_for_the_next_refill,
    a_refill_without_a_reply_ends_at_its_timeout,
    a_reply_within_the_timeout_is_waited_for,
    a_refill_refused_by_429_is_tried_again,
    a_refill_refused_by_503_is_tried_again,
    a_refill_refused_by_502_is_tried_again,
    a_refill_refused_by_504_is_tried_again,
    a_refill_that_fails_again_and_again_is_tried_again,
    a_sole_replica_is_called_after_the_time_that_it_named,
    a_sole_replica_that_limits_the_rate_is_called_after_the_time_that_it_named,
    a_connection_that_ends_without_a_reply_is_a_failure_to_retry,
    a_lost_reply_costs_its_numbers_and_repeats_none,
    half_a_reply_costs_its_numbers_and_repeats_none,
    a_replica_that_stays_away_is_an_error_at_the_deadline,
    the_status_400_is_final_and_its_code_reaches_the_caller,
    the_status_401_is_final_and_its_code_reaches_the_caller,
    the_status_403_is_final_and_its_code_reaches_the_caller,
    the_status_404_is_final_and_its_code_reaches_the_caller,
    the_status_409_is_final_and_its_code_reaches_the_caller,
    the_status_410_is_final_and_its_code_reaches_the_caller,
    the_status_500_is_final_and_its_code_reaches_the_caller,
    a_final_refusal_is_not_tried_again,
    a_final_refusal_reaches_all_callers_that_wait,
    a_call_after_a_final_refusal_asks_again,
    a_prefetch_that_failed_is_tried_again,
    a_prefetch_that_lost_its_reply_is_tried_again,
    the_end_of_a_sequence_is_an_error_after_its_last_number,
    after_a_failure_the_other_replica_is_called_at_once,
    a_library_stays_at_the_replica_that_answers,
    a_library_stays_at_its_first_replica_while_it_answers,
    if_all_replicas_failed_the_one_that_rested_longest_is_called,
    a_replica_that_closes_its_connection_is_left_without_a_rest,
    a_replica_that_refuses_and_closes_its_connection_is_left,
    a_replica_that_refuses_is_kept,
    another_service_at_the_address_of_a_replica_is_left,
    a_service_without_sequences_at_the_address_of_a_replica_is_left,
    a_replica_that_is_gone_is_left_for_another,
    a_replica_that_hangs_is_left_for_another,
    two_replicas_that_failed_are_left_for_a_third,
    a_forked_child_never_gives_a_number_of_its_parent,
    a_forked_child_fills_a_buffer_of_its_own,
    without_its_fork_hook_a_forked_child_repeats_numbers,
    what_is_forgotten_is_not_given,
    a_refill_that_ends_after_forget_is_dropped,
    the_definition_is_read_once,
    a_sequence_that_is_not_there_yet_is_made_by_its_first_number,
    a_sequence_that_may_not_be_made_is_an_error,
    each_number_of_a_strict_sequence_is_a_call,
    each_number_of_a_daily_sequence_is_a_call,
    each_number_of_a_time_ordered_sequence_is_a_call,
    each_number_is_a_call_if_the_program_says_so,
    without_the_right_to_look_the_program_says_the_kind,
    without_the_right_to_look_printed_ids_are_those_of_the_service,
    without_the_right_to_look_the_program_must_say_the_kind,
    what_the_program_says_does_not_make_a_strict_sequence_buffered,
    numbers_of_a_period_are_not_buffered_whatever_the_program_says,
    a_take_from_a_strict_sequence_is_a_call_once_its_kind_is_known,
    a_call_for_one_number_that_failed_is_tried_again,
    printed_ids_are_buffered,
    ids_without_a_format_are_the_numbers,
    numbers_near_2_to_the_63_keep_their_digits,
    numbers_above_2_to_the_53_keep_their_digits,
    a_take_never_waits_and_starts_a_refill,
    a_take_after_a_failure_starts_another_refill,
    a_warm_start_fills_the_buffer,
    a_warm_start_that_is_refused_is_an_error,
    a_range_is_unbroken,
    a_range_is_unbroken_although_the_buffer_has_gaps,
    a_range_may_be_larger_than_a_block,
    numbers_above_their_age_are_dropped,
    without_an_age_numbers_are_kept,
    the_hooks_report_refills_and_waits,
    the_readings_say_what_is_left,
    a_token_goes_with_every_call,
);

#[test]
fn each_case_is_a_test() {
    let names: BTreeSet<&str> = NAMES.iter().copied().collect();
    let missing: Vec<_> = Case::all_names().difference(&names).copied().collect();
    assert_eq!(missing, Vec::<&str>::new(), "cases that are no tests");
    let unknown: Vec<_> = names.difference(&Case::all_names()).copied().collect();
    assert_eq!(unknown, Vec::<&str>::new(), "tests that are no cases");
}

/// Rules that no script can show: `kept.rs` and `replicas` have their tests.
const WITHOUT_CASE: [u32; 1] = [7];

#[test]
fn each_rule_has_a_case() {
    let rules = Case::all_rules();
    let without = (1..=15).filter(|rule| !rules.contains(format!("C{rule}").as_str()));
    assert_eq!(without.collect::<Vec<u32>>(), WITHOUT_CASE);
}
