//! Names of AArch64 processors by implementer and part, which `MIDR_EL1`, and therefore /proc/cpuinfo,
//! contains as numbers (arch/arm64/include/asm/cputype.h; sys-utils/lscpu-arm.c of util-linux).

/// The implementer of a code: a name, or the code itself if unknown; `None` for software, which has no
/// implementer.
pub(crate) fn implementer(code: &str) -> Option<&str> {
    Some(match code {
        "0x00" => return None,
        "0x41" => "ARM",
        "0x42" => "Broadcom",
        "0x43" => "Cavium",
        "0x46" => "Fujitsu",
        "0x48" => "HiSilicon",
        "0x4e" => "NVIDIA",
        "0x50" => "APM",
        "0x51" => "Qualcomm",
        "0x61" => "Apple",
        "0x6d" => "Microsoft",
        "0x70" => "Phytium",
        "0xc0" => "Ampere",
        other => other,
    })
}

/// The name of an implementer's part; `part 0x123` if unknown.
pub(crate) fn part(implementer: Option<&str>, code: &str) -> String {
    let number = code.strip_prefix("0x").and_then(|hex| u16::from_str_radix(hex, 16).ok());
    let table: &[(u16, &str)] = match implementer {
        None => &[(0x051, "QEMU max")],
        Some("ARM") => ARM,
        Some("Ampere") => &[(0xac3, "AmpereOne"), (0xac4, "AmpereOne A"), (0xac5, "AmpereOne B")],
        Some("APM") => &[(0x000, "X-Gene")],
        Some("Apple") => APPLE,
        Some("Broadcom") => &[(0x100, "Brahma-B53"), (0x516, "Vulcan")],
        Some("Cavium") => CAVIUM,
        Some("Fujitsu") => &[(0x001, "A64FX"), (0x003, "MONAKA")],
        Some("HiSilicon") => {
            &[(0xd01, "TaiShan v110"), (0xd02, "TaiShan v120"), (0xd06, "HIP12"), (0xd40, "Cortex-A76")]
        }
        Some("Microsoft") => &[(0xd49, "Azure Cobalt 100")],
        Some("NVIDIA") => &[(0x000, "Denver"), (0x003, "Denver 2"), (0x004, "Carmel"), (0x010, "Olympus")],
        Some("Phytium") => {
            &[(0x660, "FTC660"), (0x661, "FTC661"), (0x662, "FTC662"), (0x663, "FTC663"), (0x664, "FTC664")]
        }
        Some("Qualcomm") => QUALCOMM,
        Some(_) => &[],
    };
    let known = table.iter().find(|(part, _)| Some(*part) == number);
    known.map_or_else(|| format!("part {code}"), |(_, name)| (*name).to_string())
}

const ARM: &[(u16, &str)] = &[
    (0xc05, "Cortex-A5"),
    (0xc07, "Cortex-A7"),
    (0xc08, "Cortex-A8"),
    (0xc09, "Cortex-A9"),
    (0xc0d, "Cortex-A17"),
    (0xc0e, "Cortex-A17"),
    (0xc0f, "Cortex-A15"),
    (0xd01, "Cortex-A32"),
    (0xd02, "Cortex-A34"),
    (0xd03, "Cortex-A53"),
    (0xd04, "Cortex-A35"),
    (0xd05, "Cortex-A55"),
    (0xd06, "Cortex-A65"),
    (0xd07, "Cortex-A57"),
    (0xd08, "Cortex-A72"),
    (0xd09, "Cortex-A73"),
    (0xd0a, "Cortex-A75"),
    (0xd0b, "Cortex-A76"),
    (0xd0c, "Neoverse-N1"),
    (0xd0d, "Cortex-A77"),
    (0xd0e, "Cortex-A76AE"),
    (0xd40, "Neoverse-V1"),
    (0xd41, "Cortex-A78"),
    (0xd42, "Cortex-A78AE"),
    (0xd43, "Cortex-A65AE"),
    (0xd44, "Cortex-X1"),
    (0xd46, "Cortex-A510"),
    (0xd47, "Cortex-A710"),
    (0xd48, "Cortex-X2"),
    (0xd49, "Neoverse-N2"),
    (0xd4a, "Neoverse-E1"),
    (0xd4b, "Cortex-A78C"),
    (0xd4c, "Cortex-X1C"),
    (0xd4d, "Cortex-A715"),
    (0xd4e, "Cortex-X3"),
    (0xd4f, "Neoverse-V2"),
    (0xd80, "Cortex-A520"),
    (0xd81, "Cortex-A720"),
    (0xd82, "Cortex-X4"),
    (0xd83, "Neoverse-V3AE"),
    (0xd84, "Neoverse-V3"),
    (0xd85, "Cortex-X925"),
    (0xd87, "Cortex-A725"),
    (0xd88, "Cortex-A520AE"),
    (0xd89, "Cortex-A720AE"),
    (0xd8a, "C1-Nano"),
    (0xd8b, "C1-Pro"),
    (0xd8c, "C1-Ultra"),
    (0xd8e, "Neoverse-N3"),
    (0xd8f, "Cortex-A320"),
    (0xd90, "C1-Premium"),
];

const APPLE: &[(u16, &str)] = &[
    (0x022, "M1 Icestorm"),
    (0x023, "M1 Firestorm"),
    (0x024, "M1 Pro Icestorm"),
    (0x025, "M1 Pro Firestorm"),
    (0x028, "M1 Max Icestorm"),
    (0x029, "M1 Max Firestorm"),
    (0x032, "M2 Blizzard"),
    (0x033, "M2 Avalanche"),
    (0x034, "M2 Pro Blizzard"),
    (0x035, "M2 Pro Avalanche"),
    (0x038, "M2 Max Blizzard"),
    (0x039, "M2 Max Avalanche"),
];

const CAVIUM: &[(u16, &str)] = &[
    (0x0a0, "ThunderX"),
    (0x0a1, "ThunderX 88XX"),
    (0x0a2, "ThunderX 81XX"),
    (0x0a3, "ThunderX 83XX"),
    (0x0af, "ThunderX2 99xx"),
    (0x0b0, "OcteonTX2"),
    (0x0b8, "ThunderX3 T110"),
];

const QUALCOMM: &[(u16, &str)] = &[
    (0x001, "Oryon"),
    (0x800, "Kryo 2xx Gold"),
    (0x801, "Kryo 2xx Silver"),
    (0x802, "Kryo 3xx Gold"),
    (0x803, "Kryo 3xx Silver"),
    (0x804, "Kryo 4xx Gold"),
    (0x805, "Kryo 4xx Silver"),
    (0xc00, "Falkor"),
    (0xc01, "Saphira"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_have_names_and_the_rest_numbers() {
        let name = |implementer_code, code| part(implementer(implementer_code), code);
        assert_eq!(name("0x41", "0xd0c"), "Neoverse-N1");
        assert_eq!(name("0x41", "0xd4f"), "Neoverse-V2");
        assert_eq!(name("0xc0", "0xac3"), "AmpereOne");
        assert_eq!(name("0x6d", "0xd49"), "Azure Cobalt 100");
        assert_eq!(name("0x00", "0x051"), "QEMU max");
        assert_eq!((implementer("0x99"), name("0x99", "0xd0c")), (Some("0x99"), "part 0xd0c".into()));
        assert_eq!(name("0x41", "0x7ff"), "part 0x7ff");
        assert_eq!(name("0x41", "nonsense"), "part nonsense");
    }

    #[test]
    fn each_part_stands_once() {
        for table in [ARM, APPLE, CAVIUM, QUALCOMM] {
            assert!(table.windows(2).all(|two| two[0].0 < two[1].0), "{table:x?}");
        }
    }
}
