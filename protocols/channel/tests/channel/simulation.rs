//! Calls in a random network against a model: no call is executed twice, and none that was answered
//! not at all, whatever is lost, repeated, delayed, and whenever the server reboots. One seed
//! replays all of it.

use crate::world::{Below, World, pattern};
use core::time::Duration;
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use xk_core::object::CallCause;
use xk_core::random::Random;
use xk_core::shepherd::Semaphore;
use xk_core::{Kernel, Message};
use xk_testkit::kernel::{Task, octets};
use xk_testkit::seeds;

/// Calls that each task makes, one after the other.
const CALLS: u32 = 12;

#[derive(Default)]
struct Model {
    /// Executions of each call.
    executed: HashMap<u32, u32>,
    replied: u32,
    failed: u32,
}

/// Reply of the server to a request.
fn reply_to(request: &[u8]) -> Vec<u8> {
    let id = request.first_chunk().map_or(0, |id| u32::from_be_bytes(*id));
    pattern(request.len() / 2 + (id as usize * 977) % 4000, id)
}

/// Request of a call.
fn request_of(id: u32, random: &Random) -> Vec<u8> {
    let len = match random.below(3) {
        0 => random.below(16),
        1 => random.below(1400),
        _ => random.below(20_000),
    };
    let mut request = id.to_be_bytes().to_vec();
    request.extend(pattern(len as usize, id));
    request
}

/// Has the server that there is now keep the model's books.
fn serve(world: &World, model: &Rc<RefCell<Model>>, random: &Rc<Random>) {
    let (model, random) = (Rc::clone(model), Rc::clone(random));
    let client = world.client().cx.share();
    world.server().top.on_serve(Some(Rc::new(move |cx: &Kernel, _, request: Message| {
        let request = octets(&request);
        let id = request.first_chunk().map_or(0, |id| u32::from_be_bytes(*id));
        *model.borrow_mut().executed.entry(id).or_default() += 1;
        if random.below(8) == 0 {
            let never = Semaphore::new(0);
            let time = Duration::from_millis(random.below(400) + 1);
            let _ = client.wait(&never, Some(time));
        }
        let reply = reply_to(&request);
        Ok(cx.pool().copy_from(128, &reply).expect("a buffer"))
    })));
}

/// A network as the seed wants it, in which the server reboots now and then.
fn network(
    world: &World,
    model: &Rc<RefCell<Model>>,
    random: &Rc<Random>,
) -> crate::world::Network {
    let (again, model, random) = (world.clone(), Rc::clone(model), Rc::clone(random));
    let (loss, twice) = (random.below(200) as u32, random.below(150) as u32);
    let (delay, reboots) = (random.below(40) + 1, random.below(2) == 0);
    Rc::new(move |_, _, _| {
        if reboots && random.chance_per_million(2000) {
            again.reboot_server();
            serve(&again, &model, &random);
        }
        if random.chance_per_million(loss * 1000) {
            return Vec::new();
        }
        let later = || Duration::from_millis(random.below(delay));
        let mut fate = vec![later()];
        while fate.len() < 3 && random.chance_per_million(twice * 1000) {
            // Some come very late.
            fate.push(later() * if random.below(10) == 0 { 100 } else { 1 });
        }
        fate
    })
}

fn simulate(seed: u64) -> (u32, u32) {
    let random = Rc::new(Random::new(seed));
    let below = match random.below(4) {
        0 => Below::Hosts,
        _ => Below::Fragment,
    };
    let world = World::new(seed, below);
    let model: Rc<RefCell<Model>> = Rc::default();
    serve(&world, &model, &random);
    world.set_network(network(&world, &model, &random));
    let tasks = (0..1 + random.below(3) as u32).map(|task| {
        let (world, model, random) = (world.clone(), Rc::clone(&model), Rc::clone(&random));
        Box::new(move |cx: &Kernel| {
            let session = world.open();
            for n in 0..CALLS {
                let id = task * 1000 + n + 1;
                let request = request_of(id, &random);
                let end = session.call(cx, world.message(&request));
                let mut model = model.borrow_mut();
                match end {
                    Ok(reply) => {
                        assert!(
                            reply.eq_octets(&reply_to(&request)),
                            "seed {seed}: the reply to call {id} is another's"
                        );
                        assert_eq!(model.executed.get(&id), Some(&1), "seed {seed}: call {id}");
                        model.replied += 1;
                    }
                    Err(error) => {
                        assert!(
                            matches!(error.cause, CallCause::TimedOut { .. } | CallCause::Rebooted),
                            "seed {seed}: call {id}: {error}"
                        );
                        model.failed += 1;
                    }
                }
            }
            session.close(cx);
        }) as Task
    });
    let (carrying, tasks) = (world.clone(), tasks.collect());
    let limit = Duration::from_secs(24 * 3600);
    let ended = world.client().cx.run_tasks(limit, tasks, move |_| carrying.carry());
    assert!(ended, "seed {seed}: every call ends");
    // What is still under way arrives.
    world.pass(Duration::from_secs(200));
    for (id, times) in &model.borrow().executed {
        assert_eq!(*times, 1, "seed {seed}: call {id} was executed {times} times");
    }
    let counts = (model.borrow().replied, model.borrow().failed);
    world.set_network(crate::world::perfect());
    world.server().top.on_serve(None);
    world.finish();
    counts
}

#[test]
fn at_most_once_in_random_networks() {
    let sum = seeds::of(1).sum(|seed| {
        let (replied, failed) = simulate(seed);
        [replied.into(), failed.into()]
    });
    println!("{sum:?} calls were answered, and failed");
    assert!(sum.is_none_or(|[replied, failed]| replied > 20 * failed), "{sum:?}");
}
