//! Places, shares and who has to leave; nothing here waits.

use super::*;

fn source(last: u8) -> Source {
    IpAddr::from([192, 0, 2, last]).into()
}

impl Seat {
    /// What it was told; `None` if it waits.
    fn told(&mut self) -> Option<Verdict> {
        self.verdict.try_recv().ok()
    }

    fn has_place(&mut self) -> bool {
        self.told() == Some(Verdict::Place)
    }

    fn has_to_leave(&mut self) -> bool {
        self.told() == Some(Verdict::Leave)
    }
}

impl Gate {
    fn silent(self: &Arc<Self>, from: u8) -> Seat {
        self.enter(source(from), FirstByte::ToCome)
    }

    fn begun(self: &Arc<Self>, from: u8) -> Seat {
        self.enter(source(from), FirstByte::There)
    }

    fn is_under_pressure(&self) -> bool {
        *self.pressure.borrow()
    }

    /// Recomputes from scratch what is kept in step, and what must never be.
    fn check(&self) {
        let state = self.state.lock();
        let sum = |of: fn(&Crowd) -> usize| state.sources.values().map(of).sum::<usize>();
        assert_eq!(state.waiting, sum(Crowd::waiting));
        assert_eq!(state.ready, sum(|crowd| crowd.ready.len()));
        assert_eq!(state.taken, sum(|crowd| crowd.placed.len()));
        assert!(state.taken <= state.places && state.waiting <= state.room);
        let mut by_waiting = BTreeSet::new();
        let mut by_turn = BTreeSet::new();
        for (&source, crowd) in &state.sources {
            assert!(!crowd.is_empty() && crowd.placed.len() <= state.share);
            if let Some(oldest) = crowd.oldest() {
                by_waiting.insert((crowd.waiting(), Reverse(oldest), source));
            }
            if let Some((&first, _)) = crowd.ready.first_key_value()
                && crowd.placed.len() < state.share
            {
                by_turn.insert((crowd.placed.len(), first, source));
            }
        }
        assert_eq!(state.by_waiting, by_waiting);
        assert_eq!(state.by_turn, by_turn);
        assert!(state.by_turn.is_empty() || state.taken == state.places);
        assert_eq!(self.is_under_pressure(), state.is_under_pressure());
    }
}

#[test]
fn a_connection_that_sends_nothing_takes_no_place() {
    let gate = Gate::new(2, 100);
    let _silent: Vec<_> = (0..10).map(|_| gate.silent(1)).collect();
    assert!(gate.begun(1).has_place());
    let mut late = gate.silent(1);
    assert_eq!(late.told(), None);
    late.first_byte();
    assert!(late.has_place());
    gate.check();
}

#[test]
fn a_source_has_its_share_and_leaves_the_rest_to_others() {
    let gate = Gate::new(10, 80);
    let mut many: Vec<_> = (0..30).map(|_| gate.begun(1)).collect();
    assert!(many[..8].iter_mut().all(Seat::has_place));
    assert!(many[8..].iter_mut().all(|seat| seat.told().is_none()));
    assert!(gate.is_under_pressure());
    let (mut second, mut third) = (gate.begun(2), gate.begun(3));
    assert!(second.has_place() && third.has_place());
    // All are taken: the next one goes to who has the fewest, though others came earlier.
    let mut fourth = gate.begun(4);
    assert_eq!(fourth.told(), None);
    drop(many.swap_remove(0));
    assert!(fourth.has_place());
    gate.check();
}

#[test]
fn within_a_source_places_are_given_in_order_of_arrival() {
    let gate = Gate::new(1, 100);
    let first = gate.begun(1);
    let mut waiting: Vec<_> = (0..3).map(|_| gate.begun(1)).collect();
    drop(first);
    while !waiting.is_empty() {
        let mut next = waiting.remove(0);
        assert!(next.has_place());
        assert!(waiting.iter_mut().all(|seat| seat.told().is_none()));
    }
    gate.check();
}

#[test]
fn the_oldest_silent_connection_of_the_largest_source_is_ended() {
    let gate = Gate::new(1, 100);
    let _place = gate.begun(9);
    let mut few: Vec<_> = (0..2).map(|_| gate.silent(1)).collect();
    let mut begun = gate.begun(2);
    let mut many: Vec<_> = (0..WAITING_PER_PLACE - 3).map(|_| gate.silent(2)).collect();
    gate.check();
    let mut next = gate.silent(3);
    assert!(many.remove(0).has_to_leave());
    assert!(
        many.iter_mut()
            .chain(&mut few)
            .all(|seat| seat.told().is_none())
    );
    assert_eq!((begun.told(), next.told()), (None, None));
    // Where a source has none that is silent, its oldest goes.
    for seat in &many {
        seat.first_byte();
    }
    let mut another = gate.silent(3);
    assert!(begun.has_to_leave());
    assert_eq!(another.told(), None);
    gate.check();
}

#[test]
fn of_many_sources_with_one_each_the_one_that_waited_longest_leaves() {
    let gate = Gate::new(1, 100);
    let mut seats: Vec<_> = [5, 1, 9, 3, 7, 2, 8, 4]
        .map(|from| gate.silent(from))
        .into();
    for from in [200, 100] {
        seats.push(gate.silent(from));
        assert!(seats.remove(0).has_to_leave());
        assert!(seats.iter_mut().all(|seat| seat.told().is_none()));
    }
    gate.check();
}

#[test]
fn pressure_is_while_somebody_waits_in_vain() {
    let gate = Gate::new(2, 100);
    let mut silent: Vec<_> = (0..WAITING_PER_PLACE).map(|_| gate.silent(1)).collect();
    assert!(!gate.is_under_pressure(), "half of the room is free");
    silent.push(gate.silent(1));
    assert!(gate.is_under_pressure());
    silent.clear();
    assert!(!gate.is_under_pressure());
    let placed = [gate.begun(1), gate.begun(1)];
    assert!(!gate.is_under_pressure());
    let waits = gate.begun(1);
    assert!(gate.is_under_pressure());
    drop(placed);
    assert!(!gate.is_under_pressure());
    drop(waits);
    gate.set_crowded(true);
    assert!(gate.is_under_pressure());
    gate.set_crowded(false);
    assert!(!gate.is_under_pressure());
    gate.check();
}

#[test]
fn a_source_is_an_address_or_a_network_of_64_bits() {
    let of = |text: &str| Source::from(text.parse::<IpAddr>().unwrap());
    assert_eq!(of("::ffff:192.0.2.1"), of("192.0.2.1"));
    assert_ne!(of("192.0.2.1"), of("192.0.2.2"));
    assert_eq!(of("2001:db8:0:7::1"), of("2001:db8:0:7:ffff::2"));
    assert_ne!(of("2001:db8:0:7::1"), of("2001:db8:0:8::1"));
    assert_eq!(of("2001:db8:0:7::1").to_string(), "2001:db8:0:7::/64");
}

#[test]
fn counts_match_under_random_arrivals_and_departures() {
    for seed in 0..200 {
        let mut random = fastrand::Rng::with_seed(seed);
        let gate = Gate::new(random.usize(1..6), random.u8(1..=100));
        let mut seats: Vec<Seat> = Vec::new();
        for _ in 0..200 {
            let at = random.usize(0..=seats.len());
            match random.u8(0..8) {
                0..=2 => seats.push(gate.silent(random.u8(0..4))),
                3 => seats.push(gate.begun(random.u8(0..4))),
                4 | 5 if at < seats.len() => seats[at].first_byte(),
                6 if at < seats.len() => drop(seats.swap_remove(at)),
                7 => gate.turn_one_away(),
                _ => {}
            }
            gate.check();
        }
        seats.clear();
        gate.check();
        assert!(gate.state.lock().sources.is_empty(), "seed {seed}");
    }
}
