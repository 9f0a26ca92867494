//! A quota that workers share: at most `LIMIT` units are in use, and no worker is refused while enough are
//! free.

use libncpu::{BoundedCounter, Counter, Mutex};
use std::error::Error;

const LIMIT: u64 = 20;

fn main() -> Result<(), Box<dyn Error>> {
    let (quota, refused) = (BoundedCounter::new(LIMIT)?, Counter::new()?);
    let granted = Mutex::new(0);
    std::thread::scope(|s| {
        for _ in 0..8 {
            s.spawn(|| {
                for i in 0..10_000 {
                    let n = 1 + i % 4;
                    if !quota.take(n) {
                        refused.add(1);
                        continue;
                    }
                    *granted.lock() += 1;
                    quota.give(n);
                }
            });
        }
    });
    println!("{} granted, {} refused, {} in use", granted.into_inner(), refused.sum(), quota.read());
    Ok(())
}
