//! Settings from the environment.

/// The order in which racing threads are released.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Longest wait first, and without delay.
    RoundRobin,
    /// Each after a random time.
    Random,
}

/// The values of `NCPU_ACCEPT` and `NCPU_ACCEPT_DELAY`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    pub order: Order,
    /// The longest time that a thread is held back, ns.
    pub cap: u32,
}

const MAX_US: u32 = 100_000;

impl Settings {
    pub const DEFAULT: Settings = Settings { order: Order::RoundRobin, cap: 1_000_000 };

    /// `None` to switch off; an error is a line for the user.
    pub fn read(mode: Option<&[u8]>, delay: Option<&[u8]>) -> Result<Option<Settings>, &'static str> {
        let order = match mode {
            None | Some(b"" | b"round-robin") => Order::RoundRobin,
            Some(b"random") => Order::Random,
            Some(b"off") => return Ok(None),
            Some(_) => {
                return Err(
                    "libncpu_accept.so: NCPU_ACCEPT: unknown mode; expected round-robin, random or off; switched off\n",
                );
            }
        };
        let cap = match delay {
            None | Some(b"") => Settings::DEFAULT.cap,
            Some(digits) => {
                let number = std::str::from_utf8(digits).ok().and_then(|d| d.parse::<u32>().ok());
                match number {
                    Some(us @ 1..=MAX_US) => us * 1000,
                    _ => {
                        return Err(
                            "libncpu_accept.so: NCPU_ACCEPT_DELAY: expected microseconds from 1 to 100000; \
                                    switched off\n",
                        );
                    }
                }
            }
        };
        Ok(Some(Settings { order, cap }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_read_or_refused() {
        assert_eq!(Settings::read(None, None), Ok(Some(Settings::DEFAULT)));
        assert_eq!(Settings::read(Some(b""), Some(b"")), Ok(Some(Settings::DEFAULT)));
        let random = Settings { order: Order::Random, cap: 250_000 };
        assert_eq!(Settings::read(Some(b"random"), Some(b"250")), Ok(Some(random)));
        assert_eq!(Settings::read(Some(b"off"), Some(b"nonsense")), Ok(None));
        assert!(Settings::read(Some(b"Random"), None).is_err());
        for delay in ["0", "-1", "100001", "1ms", "99999999999", "\u{663}"] {
            assert!(Settings::read(None, Some(delay.as_bytes())).is_err(), "{delay}");
        }
        assert!(Settings::read(None, Some(b"\xff")).is_err());
    }
}
