//! Calls that only sleep.

use std::io;
use std::ptr::null_mut;

use super::{S, US, Wait, deadline, timespec, waited, waited_by_value};

pub fn nanosleep() -> io::Result<Wait> {
    Ok(Box::new(|ns| {
        let t = timespec(ns);
        // SAFETY: a live local, and no remainder asked for.
        waited(unsafe { libc::nanosleep(&raw const t, null_mut()) })
    }))
}

pub fn clock_nanosleep() -> io::Result<Wait> {
    Ok(Box::new(|ns| {
        let t = timespec(ns);
        // SAFETY: as above.
        waited_by_value(unsafe { libc::clock_nanosleep(libc::CLOCK_MONOTONIC, 0, &raw const t, null_mut()) })
    }))
}

fn until(clock: libc::clockid_t, ns: u64) -> io::Result<()> {
    let t = deadline(clock, ns);
    // SAFETY: as above.
    waited_by_value(unsafe { libc::clock_nanosleep(clock, libc::TIMER_ABSTIME, &raw const t, null_mut()) })
}

pub fn clock_nanosleep_abs() -> io::Result<Wait> {
    Ok(Box::new(|ns| until(libc::CLOCK_MONOTONIC, ns)))
}

pub fn clock_nanosleep_realtime() -> io::Result<Wait> {
    Ok(Box::new(|ns| until(libc::CLOCK_REALTIME, ns)))
}

pub fn usleep() -> io::Result<Wait> {
    Ok(Box::new(|ns| {
        let us = u32::try_from(ns.div_ceil(US)).map_err(io::Error::other)?;
        // SAFETY: takes a number.
        waited(unsafe { libc::usleep(us) })
    }))
}

pub fn sleep() -> io::Result<Wait> {
    Ok(Box::new(|ns| {
        let s = u32::try_from(ns.div_ceil(S)).map_err(io::Error::other)?;
        // SAFETY: takes a number.
        match unsafe { libc::sleep(s) } {
            0 => Ok(()),
            _ => Err(io::ErrorKind::Interrupted.into()),
        }
    }))
}
