"""DescribeConfigs and DescribeAcls of a node, over the wire."""

from sparkraft.base.errors import ErrorCode
from sparkraft.metadata.configs.describe import ConfigSource
from sparkraft.metadata.image import ResourceType
from sparkraft.protocol.messages.k29_describe_acls import DescribeAclsRequest
from sparkraft.protocol.messages.k32_describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from tests.server.harness import connect, node_in, run


def test_our_own_keys_are_not_secret(tmp_path):
    async def test():
        async with node_in(tmp_path, sparkraft_http_listener="127.0.0.1:0") as node:
            connection = await connect(node)
            resource = DescribeConfigsResource(
                resource_type=ResourceType.BROKER,
                resource_name=str(node.config.node_id),
                configuration_keys=["sparkraft.http.listener"],
            )
            response = await connection.send(DescribeConfigsRequest(resources=[resource]))
            (found,) = response.results[0].configs
            assert (found.value, found.is_sensitive) == ("127.0.0.1:0", False)
            assert found.config_source == ConfigSource.STATIC_BROKER_CONFIG
            await connection.close()

    run(test())


def test_describe_acls_without_an_authorizer_has_kafkas_text(tmp_path):
    async def test():
        async with node_in(tmp_path) as node:
            connection = await connect(node)
            request = DescribeAclsRequest(
                resource_type_filter=1, pattern_type_filter=1, operation=1, permission_type=1
            )
            response = await connection.send(request)
            assert response.error_code == ErrorCode.SECURITY_DISABLED
            assert response.error_message == "No Authorizer is configured on the broker"
            await connection.close()

    run(test())
