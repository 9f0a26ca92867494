//! The machine that a recording was made on.

use crate::hardware::{Hardware, Shape, ShapeError};
use crate::model::Recorded;

/// The machine of a recording, as far as it is known: the CPUs that the program could use, as they lie; each as a core of one
/// package where that is not known.
///
/// # Errors
/// It had no CPU, or more than are simulated.
pub fn recorded_machine(recorded: &Recorded) -> Result<Hardware, ShapeError> {
    let known = recorded.shape.as_deref().map(str::parse::<Shape>).transpose()?;
    let shape = match known.filter(|s| s.cpus() >= recorded.cpus as usize) {
        Some(shape) => shape,
        None => format!("1x{}x1", recorded.cpus).parse()?,
    };
    let mut hardware = Hardware::of_shape(shape);
    hardware.turbo = 1.0;
    hardware.halt_ns = recorded.halt_ns;
    hardware.handover_ns = recorded.handover_ns;
    if recorded.transfer_ns > 0.0 {
        (hardware.transfer.cluster, hardware.transfer.package) = (recorded.transfer_ns, recorded.transfer_ns);
    }
    hardware.name = "the recorded machine".into();
    Ok(hardware)
}
