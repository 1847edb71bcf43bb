"""The RabbitMQ clusters that tests start do what they are told, and keep what real ones keep."""

import asyncio
from collections import Counter

import aiormq
import pytest
from pamqp.commands import Basic
from pamqp.common import FieldValue

from tests.servers.processes import descendants, ended
from tests.servers.rabbitmq import RabbitServer
from tests.servers.rabbitmq_cluster import RabbitCluster

QUORUM: dict[str, FieldValue] = {"x-queue-type": "quorum"}


async def put(node: RabbitServer, *queues: str) -> None:
    """One message into each, confirmed."""
    connection = await aiormq.connect(node.url)
    channel = await connection.channel()
    for queue in queues:
        await channel.queue_declare(queue, durable=True, arguments=QUORUM)
        await channel.basic_publish(b"kept", routing_key=queue)
    await connection.close()


async def take(node: RabbitServer, queue: str) -> bytes:
    connection = await aiormq.connect(node.url)
    channel = await connection.channel()
    got = await channel.basic_get(queue, no_ack=True)
    await connection.close()
    return got.body


pytestmark = pytest.mark.slow  # tests/rabbitmq/test_doctor_clusters.py starts a cluster each time


async def test_a_killed_node_loses_the_lead_and_nothing_else(rabbitmq_cluster: RabbitCluster) -> None:
    first, second, third = rabbitmq_cluster.nodes
    await put(first, "kill")
    assert rabbitmq_cluster.leader_of("kill") is first  # where it was declared
    first.kill()
    assert rabbitmq_cluster.running == [second, third]
    assert rabbitmq_cluster.leader_of("kill") in (second, third)
    assert await take(second, "kill") == b"kept"
    await put(third, "kill")
    rabbitmq_cluster.mend()
    assert rabbitmq_cluster.running == [first, second, third]
    assert await take(first, "kill") == b"kept"


async def test_nothing_is_confirmed_while_most_nodes_are_dead(rabbitmq_cluster: RabbitCluster) -> None:
    first, second, third = rabbitmq_cluster.nodes
    await put(first, "most")
    second.kill()
    third.kill()
    connection = await aiormq.connect(first.url)
    channel = await connection.channel()
    asked = asyncio.ensure_future(channel.basic_publish(b"later", routing_key="most"))
    done, _ = await asyncio.wait([asked], timeout=0.5)
    assert not done
    await asyncio.to_thread(rabbitmq_cluster.mend)
    assert isinstance(await asked, Basic.Ack)
    await connection.close()
    assert [await take(third, "most") for _ in range(2)] == [b"kept", b"later"]


async def test_the_lead_is_shared_out(rabbitmq_cluster: RabbitCluster) -> None:
    names = [f"shared{number}" for number in range(6)]
    await put(rabbitmq_cluster.nodes[0], *names)
    assert {rabbitmq_cluster.leader_of(name) for name in names} == {rabbitmq_cluster.nodes[0]}
    rabbitmq_cluster.rebalance()
    leaders = Counter(rabbitmq_cluster.leader_of(name).node for name in names)
    assert len(leaders) == 3
    assert max(leaders.values()) < 6


async def test_a_virtual_host_may_be_named(rabbitmq_cluster: RabbitCluster) -> None:
    node = rabbitmq_cluster.nodes[1]
    node.management.put("vhosts", "shop/eu")
    connection = await aiormq.connect(node.url_of("shop%2Feu"))
    channel = await connection.channel()
    await channel.queue_declare("things", durable=True, arguments=QUORUM)
    await connection.close()
    assert rabbitmq_cluster.leader_of("things", "shop/eu") is node


@pytest.mark.usefixtures("rabbitmq_module_cluster")
def test_nothing_is_left_of_it() -> None:
    with RabbitCluster(2) as cluster:
        first, second = cluster.nodes
        pids = [pid for node in cluster.nodes for pid in (node.pid, *descendants(node.pid))] + [first.epmd.pid]
        folders = [first.folder, second.folder, first.epmd.folder]
        first.freeze()
        second.kill()
    assert all(ended(pid) for pid in pids)
    assert not any(folder.exists() for folder in folders)
