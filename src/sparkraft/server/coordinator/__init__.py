"""Run coordinators: logs, timers, effects and responses for the cores of `sparkraft.coordinator`.

* `shard_runtime.ShardRuntime`: executes the decisions of one shard; `shard_log` is its log.
* `coordinator_service.CoordinatorService`: the shards of one kind.
* `group_service.GroupCoordinatorService`: those of groups.
* `directory.CoordinatorDirectory`: which broker coordinates a key.
* `external_coordinators`, `transaction_verification`: coordinators that other brokers serve.
"""
