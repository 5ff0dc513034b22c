/* store_tests: the list of all test functions.
 *
 * A test opens the backend that the running suite is named after (store_fixture.h), so one table
 * serves every backend. A test that is not listed here does not compile (-Wmissing-prototypes). */
#ifndef TALLY_TESTS_CONTRACT_STORE_TESTS_H
#define TALLY_TESTS_CONTRACT_STORE_TESTS_H

/* The contract, run on every backend. */
#define TALLY_STORE_TESTS(X)                                                                       \
    X(test_store__committed_update_is_read_back)                                                   \
    X(test_store__transaction_sees_its_own_writes)                                                 \
    X(test_store__rollback_restores_everything)                                                    \
    X(test_store__rollback_forgets_only_its_own_transaction)                                       \
    X(test_store__rollback_frees_the_id_and_the_idempotency_key)                                   \
    X(test_store__rollback_without_a_transaction_is_harmless)                                      \
    X(test_store__expected_errors_leave_the_transaction_usable)                                    \
    X(test_store__many_updates_are_one_transaction)                                                \
    X(test_store__close_allows_null_and_an_open_transaction)                                       \
    X(test_store__check_passes_on_a_sound_store)                                                   \
    X(test_store__only_a_shared_store_has_leases)                                                  \
    X(test_store__every_member_of_a_job_is_read_back)                                              \
    X(test_store__extreme_values_of_a_job_are_exact)                                               \
    X(test_store__nan_stays_nan)                                                                   \
    X(test_store__every_status_is_read_back)                                                       \
    X(test_store__any_text_is_data)                                                                \
    X(test_store__texts_of_full_length_are_read_back)                                              \
    X(test_store__keys_ascend_whatever_the_caller_says)                                            \
    X(test_store__second_insert_of_an_id_already_exists)                                           \
    X(test_store__second_insert_of_an_idempotency_key_already_exists)                              \
    X(test_store__idempotency_key_gives_the_job_and_the_digest)                                    \
    X(test_store__jobs_without_an_idempotency_key_do_not_collide)                                  \
    X(test_store__unknown_id_is_not_found)                                                         \
    X(test_store__job_update_overwrites_what_is_mutable)                                           \
    X(test_store__job_update_of_an_unknown_key_is_not_found)                                       \
    X(test_store__deleted_job_leaves_nothing)                                                      \
    X(test_store__delete_frees_the_id_and_the_idempotency_key)                                     \
    X(test_store__key_of_a_deleted_job_is_not_given_again)                                         \
    X(test_store__only_a_job_that_has_ended_can_be_deleted)                                        \
    X(test_store__rollback_restores_a_deleted_job)                                                 \
    X(test_store__lists_leave_out_deleted_jobs)                                                    \
    X(test_store__document_is_appended_byte_by_byte)                                               \
    X(test_store__document_of_an_unknown_job_is_not_found)                                         \
    X(test_store__document_past_the_limit_of_the_buffer_is_too_large)                              \
    X(test_store__state_put_overwrites)                                                            \
    X(test_store__state_is_not_found_before_it_is_put)                                             \
    X(test_store__appended_parts_follow_what_was_put)                                              \
    X(test_store__appended_parts_are_in_the_order_of_their_rounds)                                 \
    X(test_store__state_put_drops_what_was_appended)                                               \
    X(test_store__append_without_a_state_is_not_found)                                             \
    X(test_store__second_append_of_a_round_already_exists)                                         \
    X(test_store__rollback_forgets_what_was_appended)                                              \
    X(test_store__rollback_restores_what_a_put_has_dropped)                                        \
    X(test_store__appended_parts_of_any_size_are_exact)                                            \
    X(test_store__empty_state_can_be_appended_to)                                                  \
    X(test_store__many_appended_parts_are_whole)                                                   \
    X(test_store__long_parts_are_exact)                                                            \
    X(test_store__state_past_the_limit_of_the_buffer_is_too_large)                                 \
    X(test_store__models_are_read_back_by_slot)                                                    \
    X(test_store__a_model_replaces_the_one_in_its_slot)                                            \
    X(test_store__models_of_unknown_jobs_and_slots)                                                \
    X(test_store__models_go_with_their_job)                                                        \
    X(test_store__a_large_model_is_exact)                                                          \
    X(test_store__digest_does_not_tell_how_a_state_was_written)                                    \
    X(test_store__job_list_is_newest_first)                                                        \
    X(test_store__job_list_gives_whole_rows)                                                       \
    X(test_store__job_list_stops_at_the_limit)                                                     \
    X(test_store__job_list_continues_before_the_cursor)                                            \
    X(test_store__job_list_filters_by_status)                                                      \
    X(test_store__job_list_follows_a_status_change)                                                \
    X(test_store__pages_of_job_list_cover_all_jobs_once)                                           \
    X(test_store__callback_stops_job_list)                                                         \
    X(test_store__job_list_live_is_oldest_first_without_the_ended)                                 \
    X(test_store__callback_may_read_the_store)                                                     \
    X(test_store__updates_are_listed_by_client)                                                    \
    X(test_store__updates_are_kept_apart_by_job_and_round)                                         \
    X(test_store__bodies_of_any_size_are_exact)                                                    \
    X(test_store__second_update_of_a_client_already_exists)                                        \
    X(test_store__update_of_an_unknown_job_is_not_found)                                           \
    X(test_store__updates_delete_drops_a_range_of_rounds)                                          \
    X(test_store__callback_stops_update_list)                                                      \
    X(test_store__every_member_of_a_record_is_read_back)                                           \
    X(test_store__records_are_listed_in_order_from_the_cursor)                                     \
    X(test_store__second_record_of_a_round_already_exists)                                         \
    X(test_store__record_of_an_unknown_job_is_not_found)                                           \
    X(test_store__record_is_overwritten)                                                           \
    X(test_store__overwriting_a_record_that_is_not_there_is_not_found)                             \
    X(test_store__callback_stops_round_list)                                                       \
    X(test_store__request_is_read_back)                                                            \
    X(test_store__request_of_an_unknown_job_is_not_found)                                          \
    X(test_store__digest_is_that_of_the_reference)                                                 \
    X(test_store__digest_shows_a_change_of_any_table)                                              \
    X(test_store__digest_shows_a_job_too_many)

/* For every backend whose data outlive the process. */
#define TALLY_STORE_REOPENING_TESTS(X)                                                             \
    X(test_store_reopening__keeps_everything)                                                      \
    X(test_store_reopening__leaves_out_what_was_not_committed)

/* Tests that need a database file. */
#define TALLY_STORE_SQLITE_FILE_TESTS(X)                                                           \
    X(test_store_sqlite_file__kill_after_commit_loses_nothing)                                     \
    X(test_store_sqlite_file__kill_before_commit_leaves_nothing)                                   \
    X(test_store_sqlite_file__kill_at_any_instant_loses_nothing_acknowledged)                      \
    X(test_store_sqlite_file__torn_log_gives_a_prefix_of_the_commits)                              \
    X(test_store_sqlite_file__second_opener_is_refused)                                            \
    X(test_store_sqlite_file__without_its_lock_file_nothing_is_written)                            \
    X(test_store_sqlite_file__hard_links_are_no_second_database)                                   \
    X(test_store_sqlite_file__never_two_that_commit)                                               \
    X(test_store_sqlite_file__killing_the_owner_frees_the_file)                                    \
    X(test_store_sqlite_file__close_leaves_only_the_database)                                      \
    X(test_store_sqlite_file__log_stays_small)                                                     \
    X(test_store_sqlite_file__any_relative_name_is_a_file)                                         \
    X(test_store_sqlite_file__header_says_whose_it_is)                                             \
    X(test_store_sqlite_file__other_schema_version_is_refused_untouched)                           \
    X(test_store_sqlite_file__database_of_another_program_is_refused_untouched)                    \
    X(test_store_sqlite_file__missing_table_or_column_is_data_loss)                                \
    X(test_store_sqlite_file__file_that_is_no_database_is_refused)                                 \
    X(test_store_sqlite_file__truncated_file_is_refused)                                           \
    X(test_store_sqlite_file__flipped_bit_is_found_or_harmless)                                    \
    X(test_store_sqlite_file__random_damage_is_an_error_or_harmless)                               \
    X(test_store_sqlite_file__unknown_status_is_data_loss)                                         \
    X(test_store_sqlite_file__damaged_change_of_a_state_is_named)                                  \
    X(test_store_sqlite_file__reader_appends_nothing)                                              \
    X(test_store_sqlite_file__directory_is_refused)                                                \
    X(test_store_sqlite_file__missing_folder_is_refused)                                           \
    X(test_store_sqlite_file__read_only_file_is_refused)                                           \
    X(test_store_sqlite_file__read_only_folder_is_refused)                                         \
    X(test_store_sqlite_file__full_disk_in_a_write_rolls_back)                                     \
    X(test_store_sqlite_file__full_disk_in_commit_rolls_back)                                      \
    X(test_store_sqlite_file__full_disk_in_open_is_an_error)                                       \
    X(test_store_sqlite_file__no_space_left_is_said)                                               \
    X(test_store_sqlite_file__only_power_loss_safe_commits_wait_for_the_medium)                    \
    X(test_store_sqlite_file__removed_log_loses_nothing)                                           \
    X(test_store_sqlite_file__check_notices_a_removed_file)                                        \
    X(test_store_sqlite_file__exclusive_reader_changes_nothing)

/* Effects of a server on a store, and the content of its database. */
#define TALLY_STORE_POSTGRES_SERVER_TESTS(X)                                                       \
    X(test_store_postgres_server__huge_lists_are_whole)                                            \
    X(test_store_postgres_server__lost_connection_is_made_again)                                   \
    X(test_store_postgres_server__lost_in_a_transaction_leaves_nothing)                            \
    X(test_store_postgres_server__lost_in_a_write_leaves_nothing)                                  \
    X(test_store_postgres_server__lost_in_commit_leaves_nothing)                                   \
    X(test_store_postgres_server__random_losses_lose_nothing_acknowledged)                         \
    X(test_store_postgres_server__conflict_in_a_write_is_retried)                                  \
    X(test_store_postgres_server__conflict_in_commit_is_retried)                                   \
    X(test_store_postgres_server__retried_transaction_keeps_what_was_told)                         \
    X(test_store_postgres_server__endless_conflict_is_given_up)                                    \
    X(test_store_postgres_server__deadlock_is_retried)                                             \
    X(test_store_postgres_server__transactions_lock_in_one_order)                                  \
    X(test_store_postgres_server__deferred_failure_fails_the_commit)                               \
    X(test_store_postgres_server__concurrent_inserts_have_ascending_keys)                          \
    X(test_store_postgres_server__two_may_make_the_schema_at_once)                                 \
    X(test_store_postgres_server__deleted_job_leaves_nothing)                                      \
    X(test_store_postgres_server__migrated_state_is_whole)                                         \
    X(test_store_postgres_server__other_schema_version_is_refused_untouched)                       \
    X(test_store_postgres_server__table_of_another_program_is_refused_untouched)                   \
    X(test_store_postgres_server__missing_table_or_column_is_data_loss)                            \
    X(test_store_postgres_server__unexpected_values_are_data_loss)                                 \
    X(test_store_postgres_server__reader_has_one_snapshot)                                         \
    X(test_store_postgres_server__reader_needs_a_store)                                            \
    X(test_store_postgres_server__no_message_has_the_password)                                     \
    X(test_store_postgres_server__server_that_is_not_there_is_an_error)

/* Effects of the network between a store and its server. */
#define TALLY_STORE_POSTGRES_NETWORK_TESTS(X)                                                      \
    X(test_store_postgres_network__silent_server_holds_up_one_call)                                \
    X(test_store_postgres_network__calls_fail_at_once_while_nobody_answers)                        \
    X(test_store_postgres_network__other_addresses_are_tried)                                      \
    X(test_store_postgres_network__replica_holds_its_jobs_after_a_partition)                       \
    X(test_store_postgres_network__slow_network_is_not_silent)                                     \
    X(test_store_postgres_network__store_may_be_closed_while_connecting)                           \
    X(test_store_postgres_network__opening_waits_for_another)

/* Several coordinators on one store, for every backend that has leases. */
#define TALLY_STORE_LEASES_TESTS(X)                                                                \
    X(test_store_leases__replicas_are_numbered_and_listed)                                         \
    X(test_store_leases__inserted_job_is_led_by_its_inserter)                                      \
    X(test_store_leases__take_gives_what_nobody_leads_oldest_first)                                \
    X(test_store_leases__stopped_walk_is_gone_on_with)                                             \
    X(test_store_leases__silent_replica_dies_and_loses_its_jobs)                                   \
    X(test_store_leases__late_renewal_keeps_what_nobody_took)                                      \
    X(test_store_leases__late_renewal_brings_nothing_back)                                         \
    X(test_store_leases__former_leader_can_write_nothing)                                          \
    X(test_store_leases__former_leader_can_give_nothing)                                           \
    X(test_store_leases__transaction_from_before_the_take_over_is_refused)                         \
    X(test_store_leases__transaction_is_refused_as_a_whole)                                        \
    X(test_store_leases__others_see_a_transaction_when_it_is_committed)                            \
    X(test_store_leases__reconnecting_keeps_the_leases)                                            \
    X(test_store_leases__lost_connection_loses_the_transaction)                                    \
    X(test_store_leases__reconnecting_after_a_take_over_holds_nothing)                             \
    X(test_store_leases__second_process_of_an_id_replaces_the_first)                               \
    X(test_store_leases__long_dead_replica_is_forgotten)                                           \
    X(test_store_leases__given_job_waits_for_its_receiver)                                         \
    X(test_store_leases__leaving_frees_the_jobs_at_once)                                           \
    X(test_store_leases__time_without_a_store_does_not_count)                                      \
    X(test_store_leases__ended_job_may_still_be_written)                                           \
    X(test_store_leases__who_is_no_replica_writes_what_nobody_leads)                               \
    X(test_store_leases__leader_of_tells_who_leads)                                                \
    X(test_store_leases__closing_leaves_the_leases_to_expire)

/* Lease tests that need a server. */
#define TALLY_STORE_POSTGRES_LEASES_TESTS(X)                                                       \
    X(test_store_postgres_leases__fence_that_a_read_has_met_is_told_by_the_commit)                 \
    X(test_store_postgres_leases__fence_is_held_until_the_end_of_the_transaction)                  \
    X(test_store_postgres_leases__stopped_process_holds_up_a_taker_briefly)                        \
    X(test_store_postgres_leases__taker_ends_the_connection_of_the_dead)                           \
    X(test_store_postgres_leases__reconnecting_changes_the_tokens)                                 \
    X(test_store_postgres_leases__reconnecting_waits_for_the_old_connection)                       \
    X(test_store_postgres_leases__ended_jobs_are_passed_over)                                      \
    X(test_store_postgres_leases__numbers_run_out)                                                 \
    X(test_store_postgres_leases__one_taker_gets_all_jobs_of_the_dead)                             \
    X(test_store_postgres_leases__lead_without_a_token_is_taken_again)

/* Store objects with concurrent transactions, in one thread. */
#define TALLY_STORE_MEMORY_DATABASE_TESTS(X)                                                       \
    X(test_store_memory_database__keys_of_open_transactions_are_unique)                            \
    X(test_store_memory_database__second_of_two_insertions_fails_in_commit)                        \
    X(test_store_memory_database__second_of_two_writers_fails_in_commit)                           \
    X(test_store_memory_database__one_connection_can_be_lost)                                      \
    X(test_store_memory_database__clock_of_the_machine_is_the_default)

/* The choice of a backend. */
#define TALLY_STORE_OPEN_TESTS(X)                                                                  \
    X(test_store_open__scheme_chooses_the_backend)                                                 \
    X(test_store_open__unknown_scheme_is_an_invalid_argument)

#define TALLY_DECLARE_TEST(name) void name(void);
TALLY_STORE_TESTS(TALLY_DECLARE_TEST)
TALLY_STORE_REOPENING_TESTS(TALLY_DECLARE_TEST)
TALLY_STORE_SQLITE_FILE_TESTS(TALLY_DECLARE_TEST)
TALLY_STORE_POSTGRES_SERVER_TESTS(TALLY_DECLARE_TEST)
TALLY_STORE_POSTGRES_NETWORK_TESTS(TALLY_DECLARE_TEST)
TALLY_STORE_LEASES_TESTS(TALLY_DECLARE_TEST)
TALLY_STORE_POSTGRES_LEASES_TESTS(TALLY_DECLARE_TEST)
TALLY_STORE_MEMORY_DATABASE_TESTS(TALLY_DECLARE_TEST)
TALLY_STORE_OPEN_TESTS(TALLY_DECLARE_TEST)
#undef TALLY_DECLARE_TEST

#endif
