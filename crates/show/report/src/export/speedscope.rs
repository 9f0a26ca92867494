//! Stacks as www.speedscope.app reads them (its file-format-schema.json): one profile for each kind of time.

use std::collections::HashMap;

use ncpu_schema::{Error, StackKind, Tables};
use serde_json::{Value, json};

use super::{KERNEL, Parts, sums};

/// The stacks of a recording in seconds, a profile each for time on CPU (spinning too), spinning in kernel locks, and time off CPU.
/// The outermost frames are process and thread, off CPU also the reason. A kind without time has no profile.
///
/// # Errors
/// Table `stacks` is not as the schema has it.
pub fn speedscope(recording: &impl Tables, name: &str) -> Result<Vec<u8>, Error> {
    let stacks = sums(recording)?;
    let mut numbers: HashMap<(&str, Option<&str>), usize> = HashMap::new();
    let mut frames: Vec<Value> = Vec::new();
    let mut number = |frame: &str, file: Option<&str>, key| {
        *numbers.entry(key).or_insert_with(|| {
            let mut value = json!({ "name": frame });
            if let Some(file) = file {
                value["file"] = file.into();
            }
            frames.push(value);
            frames.len() - 1
        })
    };
    let mut profiles = Vec::new();
    for (title, kind) in
        [("on CPU", StackKind::OnCpu), ("spinning", StackKind::Spin), ("off CPU", StackKind::OffCpu)]
    {
        let (mut samples, mut weights) = (Vec::new(), Vec::new());
        for (parts @ Parts { process, thread, wait, frames, .. }, kinds) in &stacks {
            let spin = if kind == StackKind::OnCpu { kinds[StackKind::Spin as usize].0 } else { 0.0 };
            let seconds = kinds[kind as usize].0 + spin;
            if seconds <= 0.0 {
                continue;
            }
            let wait = wait.filter(|_| kind == StackKind::OffCpu);
            let mut sample: Vec<usize> =
                [Some(*process), Some(*thread).filter(|thread| thread != process), wait]
                    .into_iter()
                    .flatten()
                    .map(|word| number(word, None, (word, None)))
                    .collect();
            // A stack without frames is the thread alone.
            if frames != thread {
                sample.extend(parts.with_files().map(|(frame, file)| match frame.strip_suffix(KERNEL) {
                    Some(name) => number(name, Some("[kernel]"), (frame, Some("[kernel]"))),
                    None => number(frame, file, (frame, file)),
                }));
            }
            samples.push(sample);
            weights.push(seconds);
        }
        if !samples.is_empty() {
            profiles.push(json!({
                "type": "sampled",
                "name": title,
                "unit": "seconds",
                "startValue": 0.0,
                "endValue": weights.iter().sum::<f64>(),
                "samples": samples,
                "weights": weights,
            }));
        }
    }
    let file = json!({
        "$schema": "https://www.speedscope.app/file-format-schema.json",
        "name": name,
        "exporter": concat!("ncpu ", env!("CARGO_PKG_VERSION")),
        "activeProfileIndex": 0,
        "shared": { "frames": frames },
        "profiles": profiles,
    });
    Ok(file.to_string().into_bytes())
}
