//! /proc/cpuinfo of x86, arm64, ia64, ppc, s390 and the rest.

use crate::midr;

/// The entry of /proc/cpuinfo for one CPU; the same for all CPUs if it does not list them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CpuInfo {
    /// Vendor: `vendor_id`, `vendor` (ia64), `CPU implementer` (arm).
    pub vendor: Option<String>,
    /// Model: `model name`, `cpu` (ppc, sparc), `cpu model`, `Processor` (old arm), `CPU part` (arm64),
    /// `machine` (s390).
    pub model: Option<String>,
    /// x86 `cpu family`.
    pub family: Option<u32>,
    /// x86 `model`.
    pub model_number: Option<u32>,
    /// Current MHz: `cpu MHz` (x86, ia64), `clock` (ppc), `cpu MHz static` (s390).
    pub mhz: Option<f64>,
}

/// Parses /proc/cpuinfo: the CPUs it lists, ascending as in the file, and the fields outside any CPU's
/// section.
pub fn parse(text: &str) -> (Vec<(u32, CpuInfo)>, CpuInfo) {
    let mut cpus: Vec<(u32, CpuInfo)> = Vec::new();
    let mut global = CpuInfo::default();
    let mut inside = false;
    for line in text.lines() {
        if line.trim().is_empty() {
            inside = false;
            continue;
        }
        // A flags line is most of the file and is never used.
        if line.starts_with("flags") || !line.as_bytes()[0].is_ascii_alphabetic() {
            continue;
        }
        let Some((key, value)) = line.split_once(':') else { continue };
        let (key, value) = (key.trim_end(), value.trim());
        // s390 has one line per CPU: "processor 0: version = 00,  identification = 279F25,  machine = 2817";
        // later kernels add sections headed "cpu number : 0".
        if let Some(cpu) = key.strip_prefix("processor ").and_then(|n| n.trim().parse().ok()) {
            let machine = value.split(',').find_map(|p| p.trim().strip_prefix("machine = "));
            let model = machine.map(|m| format!("machine {m}"));
            cpus.push((cpu, CpuInfo { model, ..CpuInfo::default() }));
            continue;
        }
        if key == "processor" {
            if let Ok(cpu) = value.parse() {
                cpus.push((cpu, CpuInfo::default()));
                inside = true;
            }
            continue;
        }
        let info = match cpus.last_mut() {
            Some((_, info)) if inside => info,
            _ => &mut global,
        };
        set(info, key, value);
    }
    (cpus, global)
}

fn set(info: &mut CpuInfo, key: &str, value: &str) {
    if value.is_empty() {
        return;
    }
    let text = || Some(squeeze(value));
    match key {
        "vendor_id" | "vendor" => info.vendor = text(),
        "CPU implementer" => info.vendor = midr::implementer(value).map(String::from),
        "model name" | "Processor" | "cpu model" | "chip type" => info.model = text(),
        "cpu" | "CPU" => info.model = info.model.take().or_else(text),
        "CPU part" => {
            info.model = info.model.take().or_else(|| Some(midr::part(info.vendor.as_deref(), value)))
        }
        "cpu family" => info.family = value.parse().ok(),
        "model" => info.model_number = value.parse().ok(),
        "cpu MHz" | "clock" | "cpu MHz static" => {
            info.mhz = value.trim_end_matches("MHz").parse().ok().filter(|m: &f64| m.is_finite() && *m > 0.0)
        }
        _ => {}
    }
}

/// "Intel(R) Xeon(R) CPU           E5345" is padded to a fixed width.
fn squeeze(text: &str) -> String {
    text.split_ascii_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn x86() {
        let (cpus, _) = parse(
            "processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 15\nmodel name\t: Intel(R) Xeon(R) CPU           E5345  @ 2.33GHz\ncpu MHz\t\t: 2327.533\nflags\t\t: fpu\n\nprocessor\t: 4\nmodel name\t: other\n",
        );
        assert_eq!(cpus.len(), 2);
        assert_eq!(cpus[0].1.model.as_deref(), Some("Intel(R) Xeon(R) CPU E5345 @ 2.33GHz"));
        assert_eq!(
            (cpus[0].1.family, cpus[0].1.model_number, cpus[0].1.mhz),
            (Some(6), Some(15), Some(2327.533))
        );
        assert_eq!((cpus[1].0, cpus[1].1.model.as_deref()), (4, Some("other")));
    }

    #[test]
    fn other_architectures() {
        let (cpus, global) = parse(
            "vendor_id       : IBM/S390\n# processors    : 2\nprocessor 0: version = 00,  identification = 279F25,  machine = 2817\nprocessor 1: version = 00,  identification = 279F25,  machine = 2817\n",
        );
        assert_eq!(global.vendor.as_deref(), Some("IBM/S390"));
        assert_eq!((cpus[1].0, cpus[1].1.model.as_deref()), (1, Some("machine 2817")));
        let (cpus, _) = parse(
            "processor\t: 8\ncpu\t\t: POWER8 (raw), altivec supported\nclock\t\t: 3491.000000MHz\nrevision\t: 2.0\n\ntimebase\t: 512000000\n",
        );
        assert_eq!(cpus[0].1.model.as_deref(), Some("POWER8 (raw), altivec supported"));
        assert_eq!(cpus[0].1.mhz, Some(3491.0));
        let (cpus, _) = parse("processor\t: 0\nCPU implementer\t: 0x48\nCPU part\t: 0xd01\n");
        assert_eq!(cpus[0].1.vendor.as_deref(), Some("HiSilicon"));
        assert_eq!(cpus[0].1.model.as_deref(), Some("TaiShan v110"));
        let (cpus, _) = parse("processor\t: 0\nCPU implementer\t: 0x00\nCPU part\t: 0x051\n");
        assert_eq!((cpus[0].1.vendor.as_deref(), cpus[0].1.model.as_deref()), (None, Some("QEMU max")));
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "((processor|cpu MHz|model|flags|\\PC{0,9})[ \t]*:? ?\\PC{0,12}\n){0,12}") {
            let _ = parse(&text);
        }
    }
}
