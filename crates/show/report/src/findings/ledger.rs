//! The ledger: no second is given to two causes.

use ncpu_schema::Layer;

use super::claim::{Claim, Source};

/// Seconds given to a claim.
#[derive(Clone, Debug, PartialEq)]
pub struct Given {
    /// The layer that they lie in.
    pub layer: Layer,
    /// What they went to.
    pub what: &'static str,
    /// CPU-seconds.
    pub seconds: f64,
    /// Timer samples behind them; 0 of seconds that no stack stands for.
    pub samples: f64,
}

/// What is left of each stack and layer.
#[derive(Clone, Debug)]
pub struct Ledger {
    /// Layer, seconds and samples of each sampled stack.
    stacks: Vec<(Layer, f64, f64)>,
    left_of_stacks: Vec<f64>,
    left_of_layers: [f64; Layer::ALL.len()],
}

impl Ledger {
    /// Of layers with their seconds, and stacks, each with its layer, seconds and samples. The stacks of a layer hold no
    /// more than the layer: where they do, as rounding makes them, they are scaled.
    pub fn new(layers: &[(Layer, f64)], stacks: &[(Layer, f64, u64)]) -> Ledger {
        let mut left_of_layers = [0.0; Layer::ALL.len()];
        let mut sampled = [0.0; Layer::ALL.len()];
        for (layer, seconds) in layers {
            left_of_layers[*layer as usize] += seconds.max(0.0);
        }
        for (layer, seconds, _) in stacks {
            sampled[*layer as usize] += seconds;
        }
        let scale = |layer: Layer| match sampled[layer as usize] > left_of_layers[layer as usize] {
            true => left_of_layers[layer as usize] / sampled[layer as usize],
            false => 1.0,
        };
        let stacks: Vec<_> =
            stacks.iter().map(|(layer, seconds, n)| (*layer, seconds * scale(*layer), *n as f64)).collect();
        let left_of_stacks = stacks.iter().map(|(_, seconds, _)| *seconds).collect();
        for layer in Layer::ALL {
            let left = left_of_layers[layer as usize] - sampled[layer as usize];
            left_of_layers[layer as usize] = left.max(0.0);
        }
        Ledger { stacks, left_of_stacks, left_of_layers }
    }

    /// Gives a claim what it asks for, as far as it is left. Parts of one layer and kind are one.
    pub fn give(&mut self, claim: &Claim) -> Vec<Given> {
        let mut all: Vec<Given> = Vec::new();
        for ask in &claim.asks {
            let (layer, left, whole, samples) = match ask.from {
                Source::Sample(at) => {
                    let Some(&(layer, whole, n)) = self.stacks.get(at) else { continue };
                    (layer, &mut self.left_of_stacks[at], whole, n)
                }
                Source::Layer(layer) => (layer, &mut self.left_of_layers[layer as usize], 0.0, 0.0),
            };
            let seconds = ask.seconds.min(*left).max(0.0);
            if seconds <= 0.0 {
                continue;
            }
            *left -= seconds;
            let samples = if whole > 0.0 { samples * seconds / whole } else { 0.0 };
            match all.iter_mut().find(|given| given.layer == layer && given.what == ask.what) {
                Some(given) => {
                    given.seconds += seconds;
                    given.samples += samples;
                }
                None => all.push(Given { layer, what: ask.what, seconds, samples }),
            }
        }
        all.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
        all
    }

    /// Seconds of a layer that nothing was given of.
    pub fn left(&self, layer: Layer) -> f64 {
        let stacks = self.stacks.iter().zip(&self.left_of_stacks).filter(|((of, ..), _)| *of == layer);
        self.left_of_layers[layer as usize] + stacks.map(|(_, left)| left).sum::<f64>()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::claim::Kind;
    use super::*;
    use crate::causes::When;

    fn layer() -> impl Strategy<Value = Layer> {
        (0..Layer::ALL.len()).prop_map(|at| Layer::ALL[at])
    }

    fn source(stacks: usize) -> impl Strategy<Value = Source> {
        // Some stacks do not exist.
        prop_oneof![(0..stacks + 2).prop_map(Source::Sample), layer().prop_map(Source::Layer)]
    }

    proptest! {
        #[test]
        fn no_second_is_given_twice_and_none_is_lost(
            layers in prop::collection::vec((layer(), 0.0..100.0f64), 0..12),
            stacks in prop::collection::vec((layer(), 0.0..30.0f64, 0u64..500), 0..12),
            claims in prop::collection::vec(prop::collection::vec((source(12), -1.0..60.0f64), 0..8), 0..10),
        ) {
            let whole = |layer: Layer| layers.iter().filter(|(of, _)| *of == layer).map(|(_, s)| s).sum::<f64>();
            let mut ledger = Ledger::new(&layers, &stacks);
            for layer in Layer::ALL {
                prop_assert!((ledger.left(layer) - whole(layer)).abs() < 1e-9, "before anything was given");
            }
            let mut given = Vec::new();
            for asks in &claims {
                let mut claim = Claim::new(Kind::Lock, [When::Lock], "x");
                for (from, seconds) in asks {
                    claim.ask(*from, *seconds, "x");
                }
                let parts = ledger.give(&claim);
                let sum: f64 = parts.iter().map(|part| part.seconds).sum();
                prop_assert!(sum <= claim.asked() + 1e-9, "no more than was asked for");
                given.extend(parts);
            }
            for layer in Layer::ALL {
                let of: f64 = given.iter().filter(|part| part.layer == layer).map(|part| part.seconds).sum();
                prop_assert!((of + ledger.left(layer) - whole(layer)).abs() < 1e-6, "{} {of}", layer.name());
                prop_assert!(ledger.left(layer) >= -1e-9);
            }
            let samples: f64 = given.iter().map(|part| part.samples).sum();
            prop_assert!(samples <= stacks.iter().map(|s| s.2 as f64).sum::<f64>() + 1e-6);
        }
    }
}
