"""Secure aggregation over every algorithm: the plain run within the rounding of its encoding, with exact books."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from fedadmm.algorithms import Scaffold
from fedadmm.core.algorithm import Algorithm
from fedadmm.core.optional import SkipsCommunication, imbalance, invariant_of, trait
from fedadmm.core.transport import Transport
from fedadmm.engine.probe import probe
from fedadmm.secure.settings import Secure
from fedadmm.uploads.chain import transport_of
from fedadmm.uploads.settings import UploadSettings
from methods import METHODS, mostly_slow
from play import Play, identical
from worlds import NUM_CLIENTS, World, quadratic_world

ROUNDS = ([0, 1, 3], [0, 2, 3, 4], [1, 2, 4], [0, 1, 2, 3, 4])
ASKED = [name for name, method in METHODS.items() if not trait(method, SkipsCommunication)]  # the others are refused


def transport(method: Algorithm, world: World, **settings: Any) -> Transport:
    """Return the transport of these settings in a small world."""
    _, client, upload = probe(method, world.theta)
    tables = UploadSettings(secure=Secure(**settings))
    found = transport_of(tables, seed=0, like=upload, client=type(client), num_clients=NUM_CLIENTS)
    assert found is not None
    return found


def gap(play: Play, method: Algorithm, world: World) -> float:
    """Return how far what the server holds is from the mean of its clients."""
    held = invariant_of(method, play.checkpoint.server, initial=world.theta, registered=float(NUM_CLIENTS))
    if held is None or held.adds is None:
        return 0.0
    upload, states = probe(method, world.theta).upload, [(1.0, state) for state in play.states.values()]
    return imbalance(held, states, registered=float(NUM_CLIENTS), upload=upload)


@pytest.mark.parametrize("name", mostly_slow(ASKED, plain=["fedadmm", "fast_fedadmm", "scaffold", "fedavg", "fedexp"]))
def test_masked_sums_are_the_plain_run_within_the_rounding_of_their_encoding(name: str) -> None:
    method, world = METHODS[name], quadratic_world()
    plain = world.play(method).rounds(ROUNDS)
    # 5 clients x 1000 < 2^13: the step is 2^-50, some units in the last place of theta.
    masked = world.play(method, transport=transport(method, world, bits=64, range=1e3)).rounds(ROUNDS)
    assert torch.allclose(masked.theta, plain.theta, rtol=0, atol=1e-11)
    # 5 x 16 < 2^7: the step is 2^-24 = 6e-8.
    world = quadratic_world()
    masked = world.play(method, transport=transport(method, world)).rounds(ROUNDS)
    assert 0 < float((masked.theta - plain.theta).abs().max()) < 1e-4
    assert gap(masked, method, world) < 1e-9  # numbers beside the vectors are rounded to 2^-40


def test_what_rounding_leaves_out_is_sent_later_so_that_sums_do_not_drift() -> None:
    method, gaps = Scaffold(eta=0.5), []
    for keeps_rest in (True, False):
        world = quadratic_world()
        sent = transport(method, world, bits=16, range=16)  # a step of 2^-8
        steps = tuple(replace(step, keeps_rest=keeps_rest) for step in sent.steps)
        unmasked = replace(sent, steps=steps, keeps_held_back=keeps_rest, sums=None)  # the same sums, and fast
        play = world.play(method, transport=unmasked)
        gaps.append(gap(play.rounds([[0, 1, 2, 3], [1, 2, 3, 4]] * 15), method, world))
    assert gaps[0] < 1e-12 < 1e-4 < gaps[1]


def test_a_client_whose_upload_is_out_of_range_sends_nothing_and_the_others_count() -> None:
    method, world = Scaffold(), quadratic_world()
    plain = world.play(method)
    before, norms = plain.states, [result.upload.step.abs().max() for result in plain.visits(range(NUM_CLIENTS))]
    farthest = max(range(NUM_CLIENTS), key=norms.__getitem__)
    play = quadratic_world().play(method, transport=transport(method, world, range=float(norms[farthest]) * 0.999))
    summary = play.round(range(NUM_CLIENTS))
    assert summary.refused == summary.oversized == (farthest,)
    without = quadratic_world().play(method, transport=transport(method, world, range=float(norms[farthest]) * 0.999))
    without.round([client for client in range(NUM_CLIENTS) if client != farthest])
    assert identical(play.checkpoint, without.checkpoint)
    assert identical(play.states, without.states)
    assert not before


@pytest.mark.parametrize("asked", [[], [2], [0, 1, 2]])
def test_a_round_with_too_few_is_void_and_leaves_no_trace_but_its_number(asked: list[int]) -> None:
    # Of three that are asked each has two neighbours, of whom more than half are both: nobody may be lost.
    method, world = Scaffold(), quadratic_world()
    play = world.play(method, transport=transport(method, world)).rounds([[0, 1, 3]])
    before, states = play.checkpoint, play.states
    if asked:
        world.poison(asked[-1])
    summary = play.round(asked)
    assert summary.clients == ()
    assert identical(play.checkpoint, before._replace(round=2))
    assert identical(play.states, states)
