//! What contrib/ ships: alerts whose tests hold, and manifests that ask for the same rights.

use std::path::{Path, PathBuf};
use std::process::Command;

fn contrib(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../contrib").join(file)
}

/// Output of a program that ends well; `None` where there is no such program.
fn output(command: &mut Command) -> Option<String> {
    let done = match command.output() {
        Ok(done) => done,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            eprintln!("skipped: no {}", command.get_program().display());
            return None;
        }
        Err(e) => panic!("{e}"),
    };
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(done.status.success(), "{}{}", text(&done.stdout), text(&done.stderr));
    Some(text(&done.stdout))
}

#[test]
fn alerts_do_what_their_tests_say() {
    output(Command::new("promtool").args(["test", "rules"]).arg(contrib("ncpu-alerts.test.yml")));
}

/// The lines of a container's rights, without their indentation.
fn rights(manifest: &str) -> Vec<String> {
    let from = manifest.lines().skip_while(|line| line.trim() != "securityContext:");
    let own =
        from.map(str::trim).take_while(|line| !line.starts_with("resources") && !line.starts_with("{{"));
    own.filter(|line| !line.is_empty()).map(String::from).collect()
}

#[test]
fn the_chart_asks_for_the_rights_of_the_manifest() {
    let read = |file: &str| std::fs::read_to_string(contrib(file)).expect("a file of contrib");
    let [manifest, chart] =
        ["kubernetes/ncpu.yaml", "helm/ncpu/templates/daemonset.yaml"].map(|file| rights(&read(file)));
    assert!(manifest.iter().any(|line| line.starts_with("- BPF")) && manifest.len() > 10, "{manifest:?}");
    assert_eq!(manifest, chart);
    // Where there is Helm, the chart is rendered, with values of its own and with others.
    let others = ["--set", "image.tag=1.0,nodeSelector.a=b,args={--freq,19}", "--namespace", "n"];
    for set in [&others[..0], &others[..]] {
        let mut helm = Command::new("helm");
        helm.args(["template", "ncpu"]).arg(contrib("helm/ncpu")).args(set);
        let Some(rendered) = output(&mut helm) else { return };
        // Comments that templates have are in what is rendered.
        let rendered = rights(&rendered);
        assert_eq!(rendered[..manifest.len().min(rendered.len())], manifest[..]);
    }
}
