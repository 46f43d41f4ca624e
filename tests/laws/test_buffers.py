"""A model's buffers travel beside theta: averaged, committed and counted, and never part of a client's state."""

from typing import Any

import torch

from fedadmm.algorithms import FedADMM, FedAvg
from fedadmm.core.algorithm import Algorithm
from fedadmm.core.mean import num_bytes
from fedadmm.core.round import Buffers
from play import Play, identical
from worlds import World, learning_task, made, network, network_world, some_data

WEIGHTS = (1.0, 2.0, 3.0, 4.0, 5.0)
NUM_PARAMETERS = 4 * 6 + 6 + 6 + 6 + 6 * 3 + 3  # linear, the scale and shift of batch normalisation, linear
NUM_FLOATS = 6 + 6  # running mean and variance


def _left_behind(world: World, clients: list[int]) -> list[Buffers]:
    return [visit.stats.buffers for visit in world.play(FedAvg()).visits(clients)]


def test_float_buffers_are_averaged_with_the_weights_of_the_uploads() -> None:
    world = network_world()
    one, other = _left_behind(world, [1, 3])
    play = world.play(FedAvg(), weights=WEIGHTS)
    play.round([1, 3])
    torch.testing.assert_close(play.checkpoint.buffers.floats, (2 * one.floats + 4 * other.floats) / 6)
    assert not torch.allclose(play.checkpoint.buffers.floats, world.buffers.floats, atol=1e-3)


def test_integer_buffers_come_from_the_lowest_id() -> None:
    # Batches of 6: client 2 (6 examples) counts one step, client 3 (12 examples) two.
    world = network_world()
    assert [int(left.integers) for left in _left_behind(world, [2, 3])] == [1, 2]
    play = world.play(FedAvg())
    play.round([3, 2])
    assert play.checkpoint.buffers.integers.tolist() == [1]
    play.round([3, 4])  # client 3 was given 1 and counted two more
    assert play.checkpoint.buffers.integers.tolist() == [3]


def test_the_lowest_id_is_that_of_an_applied_client() -> None:
    world = network_world()
    world.poison(2)
    play = world.play(FedAvg())
    play.round([2, 3])
    assert play.checkpoint.buffers.integers.tolist() == [2]
    assert torch.isfinite(play.checkpoint.buffers.floats).all()


def test_every_client_starts_from_the_servers_buffers(method: Algorithm) -> None:
    # Client 3 leaves the same buffers behind, whether it runs alone or after others that moved theirs.
    play = network_world().play(method).rounds([[0, 1], [2, 4]])
    (alone,) = play.visits([3])
    after_others = play.visits([0, 1, 4, 3])[2]
    assert identical(tuple(alone.stats.buffers), tuple(after_others.stats.buffers))


def test_buffers_are_counted_in_bytes_both_ways() -> None:
    # float32: four bytes a number; the counter is int64. FedAvg uploads d numbers and downloads d.
    summary = network_world().play(FedAvg()).round([0, 1, 3])
    each_way = 4 * NUM_PARAMETERS + 4 * NUM_FLOATS + 8
    assert (summary.bytes_up, summary.bytes_down) == (3 * each_way, 3 * each_way)


def test_buffers_get_no_dual(method: Algorithm) -> None:
    play = network_world().play(method).rounds([[0, 1]])
    vectors: list[Any] = [*play.checkpoint.server, *play.states[0]]
    sizes = {vector.numel() for vector in vectors if isinstance(vector, torch.Tensor)}
    assert sizes == {NUM_PARAMETERS}


def test_a_client_whose_buffers_alone_are_not_finite_is_refused() -> None:
    # A huge input overflows the running variance in float32 while the normalised values stay ordinary.
    world = network_world()
    world.task.data.client(1).inputs.mul_(3e19)
    play = world.play(FedADMM())
    (visit,) = play.visits([1])
    assert torch.isfinite(visit.upload.delta).all()
    assert not torch.isfinite(visit.stats.buffers.floats).all()
    assert play.round([0, 1]).refused == (1,)


def test_an_infinite_buffer_that_training_leaves_alone_refuses_nobody() -> None:
    module = made(network)
    module.register_buffer("mask", torch.tensor([0.0, -torch.inf]))
    task = learning_task(module, some_data([8, 10, 6, 12, 8]))
    play = Play(FedAvg(), task, task.model.weights.clone(), num_clients=5, buffers=task.model.buffers())
    assert play.round([0, 1]).refused == ()
    assert int(torch.isneginf(play.checkpoint.buffers.floats).sum()) == 1


def test_a_message_costs_what_its_fields_take() -> None:
    theta = torch.zeros(5)
    assert num_bytes(FedADMM().init_client(theta)) == 5 * 4 + 5 * 4 + 8  # w, y and the scalar rho
