"""How long a client waits for the next guess."""

from __future__ import annotations

from hfcomp.annotate.app.sign_in import (
    CHECKS_A_SECOND,
    CHECKS_AT_ONCE,
    FORGOTTEN,
    FREE_FAILURES,
    LONGEST_WAIT,
    Throttle,
)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def guesses(throttle, clock, client, seconds):
    """Number of passwords tried by a client that guesses as often as it may."""
    number, end = 0, clock.now + seconds
    while clock.now < end:
        wait = throttle.wait(client)
        if wait:
            clock.now += wait + 1e-6
        else:
            throttle.fail(client)
            number += 1
    return number


def test_a_client_that_guesses_waits_ever_longer_up_to_a_limit():
    clock = Clock()
    throttle = Throttle(clock)
    assert guesses(throttle, clock, "192.0.2.1", 3600) < FREE_FAILURES + 6 + 3600 / LONGEST_WAIT
    assert throttle.wait("192.0.2.1") <= LONGEST_WAIT


def test_who_mistyped_waits_for_nothing_or_not_for_long():
    clock = Clock()
    throttle = Throttle(clock)
    for _ in range(FREE_FAILURES):
        assert throttle.wait("192.0.2.1") == 0
        throttle.fail("192.0.2.1")
    assert throttle.wait("192.0.2.1") == 0
    throttle.fail("192.0.2.1")
    assert 0 < throttle.wait("192.0.2.1") <= 1
    assert throttle.wait("192.0.2.2") == 0  # of others nobody waits
    clock.now += 1
    throttle.succeed("192.0.2.1")
    throttle.fail("192.0.2.1")
    assert throttle.wait("192.0.2.1") == 0
    clock.now += FORGOTTEN
    assert throttle.fail("192.0.2.1") == 1


def test_many_clients_share_a_limit():
    clock = Clock()
    throttle = Throttle(clock)
    number = sum(throttle.wait(f"198.51.100.{place}") == 0 for place in range(200))
    assert number == CHECKS_AT_ONCE
    clock.now += 10
    assert sum(throttle.wait(f"203.0.113.{place}") == 0 for place in range(200)) == CHECKS_AT_ONCE
    clock.now += 1
    assert sum(throttle.wait(f"203.0.113.{place}") == 0 for place in range(200)) == CHECKS_A_SECOND


def test_all_addresses_of_a_network_of_ipv6_are_one_client():
    clock = Clock()
    throttle = Throttle(clock)
    for place in range(FREE_FAILURES + 1):
        throttle.fail(f"2001:db8::{place:x}")
    assert throttle.wait("2001:db8::ffff") > 0 and throttle.wait("2001:db8:0:1::1") == 0
