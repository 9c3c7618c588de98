"""Which planted bug is which issue of Apache Kafka, and which tests play which race.

A bug is one of `registry.MUTANTS`, which an invariant of the simulator reports, or one of
`scenario_bugs.SCENARIO_BUGS`, which a test reports. `docs/planted-bugs.md` shows these tables.
"""

ISSUES: dict[str, tuple[str, ...]] = {
    "KAFKA-5416": ("kafka-5416-transitions-overtake-each-other",),
    "KAFKA-9144": ("kafka-9144-open-transactions-expire",),
    "KAFKA-9666": ("kafka-9666-failed-aborts-raise-the-epoch",),
    "KAFKA-14402": (
        "kip-890-batches-are-not-verified",
        "batches-in-unregistered-partitions",
        "kafka-14402-guards-are-not-checked-at-the-append",
    ),
    "KAFKA-14694": ("kafka-14694-a-new-block-is-waited-for",),
    "KAFKA-16030": ("kafka-16030-loads-outlive-their-leadership",),
    "KAFKA-16147": ("kafka-16147-any-member-releases",),
    "KAFKA-16352": ("kafka-16352-complete-without-all-markers",),
    "KAFKA-16367": ("kafka-16367-no-assignment-after-a-lost-response",),
    "KAFKA-16371": ("kafka-16371-refused-offsets-stay-pending",),
    "KAFKA-16374": ("kafka-16374-commits-wait-for-the-queue",),
    "KAFKA-16930": ("kafka-16930-members-without-topics",),
    "KAFKA-17228": ("kafka-17228-classic-holders-stay",),
    "KAFKA-17306": ("kafka-17306-assignments-of-unknown-members",),
    "KAFKA-17507": ("kafka-17507-markers-before-their-offsets",),
    "KAFKA-17733": ("kafka-17733-upgrades-drop-assignments",),
    "KAFKA-18137": ("kafka-18137-shards-of-earlier-epochs",),
    "KAFKA-18174": ("kafka-18174-writes-that-time-out-end-twice",),
    "KAFKA-18188": ("kafka-18188-consumer-members-cannot-be-removed",),
    "KAFKA-18464": ("kafka-18464-an-abort-of-nothing-fences",),
    "KAFKA-18654": ("kafka-18654-completions-are-not-waited-for",),
    "KAFKA-18660": ("kafka-18660-the-producer-is-checked-first",),
    "KAFKA-18672": ("kafka-18672-newer-versions-are-read-as-known",),
    "KAFKA-18688": ("kafka-18688-larger-shares-move",),
    "KAFKA-18813": ("kafka-18813-hidden-topics-are-found",),
    "KAFKA-18916": ("kafka-18916-expressions-are-not-in-the-index",),
    "KAFKA-19154": ("kafka-19154-offsets-of-earlier-topics",),
    "KAFKA-19163": ("kafka-19163-offsets-expire-under-pending-ones",),
    "KAFKA-19233": ("kafka-19233-known-members-cannot-join",),
    "KAFKA-19367": ("kafka-19367-an-abort-raises-the-epoch-twice",),
    "KAFKA-19446": ("kafka-19446-markers-without-a-version",),
    "KAFKA-19546": ("kafka-19546-every-downgrade-rebalances",),
    "KAFKA-19720": ("kafka-19720-earlier-topics-stay-assigned",),
    "KAFKA-19857": ("kafka-19857-effects-outlive-their-shard",),
    "KAFKA-19862": ("kafka-19862-tombstones-of-unknown-members",),
    "KAFKA-19959": ("kafka-19959-ended-clients-push-again",),
    "KAFKA-19999": ("kafka-19999-repeated-markers-are-refused",),
    "KAFKA-20090": ("kafka-20090-exhausted-ids-are-not-rotated",),
    "KAFKA-20268": ("kafka-20268-targets-ahead-of-the-group",),
    "KAFKA-20442": ("kafka-20442-emptied-groups-are-being-assigned",),
    "pull request 17688": ("kafka-17688-empty-batches-are-read-again",),
}
"""Issue → planted bugs."""

MIGRATION_ISSUES: dict[str, tuple[str, ...]] = {
    "KAFKA-14970": ("kafka-14970-quotas-replace-credentials",),
    "KAFKA-15003": ("kafka-15003-assignments-are-not-written",),
    "KAFKA-15004": ("kafka-15004-configs-are-not-written",),
    "KAFKA-15010": ("the-next-controller-does-not-synchronize",),
    "KAFKA-15149": ("kafka-15149-new-partitions-are-not-sent",),
    "KAFKA-15552": ("kafka-15552-producer-ids-are-given-again",),
    "KAFKA-15605": ("kafka-15605-pending-deletions-are-copied",),
    "KAFKA-15799": ("full-requests-are-not-full",),
    "KAFKA-16120": ("kafka-16120-removed-replicas-stay",),
    "KAFKA-16171": ("kafka-16171-the-first-write-checks-migration",),
    "KAFKA-16411": ("kafka-16411-default-quotas-are-named",),
    "KAFKA-16428": ("kafka-16428-changed-configs-have-no-notice",),
    "KAFKA-16431": ("kafka-16431-failed-directories-are-left-out",),
}
"""Issue of the migration from ZooKeeper → planted bugs, also of `migration_bugs.MIGRATION_BUGS`."""

OTHERS = (
    "own-revocations-are-not-free",
    "members-that-revoke-are-in-the-next-epoch",
    "partitions-keep-their-first-epoch",
    "previous-epochs-with-any-partitions",
    "markers-before-the-decision-is-committed",
    "complete-after-the-first-markers",
    "slow-transitions-count-as-failed",
    "expressions-that-backtrack",
    "groups-go-before-their-members",
    "missing-topics-are-hashed",
    "late-ends-of-fenced-producers-count-as-repeated",
    "transactions-of-fast-clocks-stay-open",
)
"""Bugs of the same parts that Kafka has not had."""

_TRANSACTIONS = "coordinator/transaction/test_races.py::"
_SHARD = "coordinator/transaction/test_shard.py::"
_GROUPS = "coordinator/test_group_races.py::"
_SERVICE = "server/coordinator/test_group_service.py::"
_LOG = "storage/test_transactions.py::"
_GUARD = "server/coordinator/test_guarded_appends.py::"

RACES: dict[str, tuple[str, ...]] = {
    "The response of EndTxn is lost; the client repeats it after the completion, in its next "
    "transaction, or to another coordinator.": (
        _SHARD + "test_a_repeated_end_txn_gets_the_same_answer_after_a_failover",
        _TRANSACTIONS + "test_an_end_txn_that_is_repeated_in_the_next_transaction_does_not_end_it",
        _TRANSACTIONS + "test_a_coordinator_that_moves_with_an_uncommitted_decision",
    ),
    "Another producer sends InitProducerId while EndTxn is being appended.": (
        _TRANSACTIONS + "test_a_new_producer_waits_for_the_end_of_the_transaction_of_the_older_one",
        _TRANSACTIONS + "test_a_new_producer_aborts_if_the_end_could_not_be_appended",
    ),
    "EndTxn arrives right before or after the timeout of its transaction.": (
        _TRANSACTIONS + "test_a_commit_right_before_the_timeout_stays",
        _TRANSACTIONS + "test_a_commit_right_after_the_timeout_is_refused",
    ),
    "A marker arrives in the next transaction.": (
        _LOG + "test_without_epochs_a_late_marker_ends_the_next_transaction",
        _LOG + "test_from_version_2_a_late_marker_ends_no_later_transaction",
    ),
    "The leader of a partition changes between the verification and the append.": (
        _GUARD + "test_a_guard_that_is_lost_while_the_coordinator_is_asked_is_taken_again",
        _GUARD + "test_a_leader_that_resigns_while_the_coordinator_is_asked_appends_nothing",
        _LOG + "test_a_guard_ends_with_the_leadership_that_gave_it",
    ),
    "A topic is deleted while a transaction is open or being completed.": (
        "server/test_transaction_races.py::test_a_topic_of_an_open_transaction_is_deleted",
        "server/coordinator/test_marker_sender.py::"
        "test_a_topic_is_deleted_while_its_marker_is_repeated",
    ),
    "A coordinator moves while its decision is not committed; the new one has it or not.": (
        _TRANSACTIONS + "test_a_coordinator_that_moves_with_an_uncommitted_decision",
        _TRANSACTIONS
        + "test_a_lost_decision_may_be_decided_otherwise_if_no_client_has_its_response",
        _TRANSACTIONS + "test_a_lost_completion_repeats_the_markers_of_the_same_epoch",
    ),
    "OffsetCommit and TxnOffsetCommit for a partition, and then the marker.": (
        "coordinator/test_offsets.py::"
        "test_of_a_commit_and_a_transactional_one_the_later_in_the_log_wins",
    ),
    "The epochs of a producer run out while every response is lost.": (
        _TRANSACTIONS + "test_epochs_run_out_while_every_response_is_lost",
        _TRANSACTIONS + "test_epochs_run_out_while_every_response_of_init_producer_id_is_lost",
    ),
    "transaction.version is downgraded while transactions are open.": (
        _TRANSACTIONS + "test_a_transaction_of_version_2_times_out_after_a_downgrade",
        _SHARD + "test_the_transaction_version_may_change_while_transactions_are_open",
    ),
    "The response to the confirmation of a revocation is lost.": (
        _GROUPS + "test_a_lost_response_to_the_confirmation_of_a_revocation",
        _GROUPS + "test_a_repeated_epoch_after_the_next_owner_has_the_partition_is_fenced",
    ),
    "A revocation is confirmed right before or after the rebalance timeout.": (
        _GROUPS + "test_a_revocation_that_is_confirmed_right_before_its_timeout",
        _GROUPS + "test_a_revocation_that_is_confirmed_right_after_its_timeout",
    ),
    "A static member is replaced while it sends heartbeats.": (
        _GROUPS + "test_a_replaced_static_member_still_sends_heartbeats",
        _GROUPS + "test_a_session_of_a_replaced_static_member_fences_nobody",
    ),
    "A topic is deleted and created again between the target and its reconciliation.": (
        _GROUPS + "test_a_topic_is_created_again_while_its_partitions_move",
    ),
    "A regular expression is resolved after its last subscriber has left.": (
        _GROUPS + "test_a_regular_expression_is_resolved_after_its_last_subscriber_is_gone",
    ),
    "JoinGroup or SyncGroup is parked or being appended while the group is upgraded.": (
        _GROUPS + "test_a_classic_member_waits_for_a_response_while_the_group_is_upgraded",
        _GROUPS + "test_the_leaders_sync_is_being_appended_while_the_group_is_upgraded",
    ),
    "A group is removed and another type takes its id in one batch.": (
        _GROUPS + "test_a_group_id_changes_its_type_in_one_batch",
    ),
    "A coordinator resigns while requests are parked or wait for their commit.": (
        _SERVICE + "test_a_group_meets_and_goes_to_the_new_leader",
        _SERVICE + "test_a_join_that_waits_for_its_commit_fails_when_leadership_ends",
    ),
    "The wall clock is set back.": (
        _TRANSACTIONS + "test_a_wall_clock_that_is_set_back_delays_a_timeout_and_stops_no_search",
        _TRANSACTIONS + "test_a_wall_clock_that_is_set_back_lets_no_id_expire",
        _GROUPS + "test_a_wall_clock_that_is_set_back_does_not_stop_assignments",
    ),
}
"""Race → the tests that play it."""
