//! Names of containers, pods and users from existing files, without calling any daemon; and rules of the
//! user.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::io::Read;
use std::path::{Path, PathBuf};

use glob::{MatchOptions, Pattern};

use super::{By, Container, Runtime, Tenant};
use crate::root::Dir;

/// The number of names kept of each kind; all are dropped when there are more.
const KEPT: usize = 4096;
/// The most entries of a directory, and bytes of a file, that are read.
const ENTRIES: usize = 8192;
const BYTES: u64 = 1 << 20;
/// The most rules of a file, and characters of a name.
const RULES: usize = 10_000;
const NAME: usize = 255;

/// Names that a runtime gave to a container.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names {
    /// The container.
    pub name: String,
    /// Its pod: `namespace/name`.
    pub pod: Option<String>,
}

/// Rules of the user: `PATTERN NAME`, one per line. The pattern, in which `*` and `?` match anything, matches
/// a group's path or a name that the group has without the rule.
#[derive(Clone, Debug, Default)]
pub struct Rules(Vec<(Pattern, String)>);

impl Rules {
    /// Reads rules. Empty lines and those that begin with `#` are left out.
    ///
    /// # Errors
    /// A line has no name, or its pattern is invalid; the message contains the line number.
    pub fn parse(text: &str) -> Result<Rules, String> {
        let mut rules = Vec::new();
        for (i, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let wrong = |why: &str| format!("line {}: {why}", i + 1);
            let (pattern, name) = line
                .split_once(char::is_whitespace)
                .map(|(pattern, name)| (pattern, name.trim()))
                .ok_or_else(|| wrong("expected PATTERN NAME"))?;
            let pattern = Pattern::new(pattern).map_err(|e| wrong(&e.to_string()))?;
            if rules.len() == RULES {
                return Err(wrong("more than 10,000 rules"));
            }
            rules.push((pattern, name.chars().take(NAME).collect()));
        }
        Ok(Rules(rules))
    }

    /// The name that the first matching rule gives to a tenant.
    pub fn name_of(&self, tenant: &Tenant) -> Option<String> {
        if self.0.is_empty() {
            return None;
        }
        let (path, name, options) =
            (tenant.cgroup.as_str(), tenant.name(By::Tenant), MatchOptions::default());
        let fits =
            |pattern: &Pattern| pattern.matches_with(path, options) || pattern.matches_with(&name, options);
        self.0.iter().find(|(pattern, _)| fits(pattern)).map(|(_, name)| name.clone())
    }
}

/// Cache of names.
pub struct Known {
    root: PathBuf,
    /// By ID: `None` if no file names it.
    containers: HashMap<String, Option<Names>>,
    pods: HashMap<String, Option<String>>,
    users: HashMap<u32, String>,
    /// Whether the list of users was read.
    listed: bool,
}

impl Default for Known {
    fn default() -> Known {
        Known::below(Path::new("/"))
    }
}

/// A name from a file, bounded; `None` if it is empty.
fn bounded(name: &str) -> Option<String> {
    let name: String = name.trim_start_matches('/').chars().take(NAME).collect();
    (!name.is_empty()).then_some(name)
}

/// A value in JSON text, by the first key of this name with a string value.
fn value(json: &str, key: &str) -> Option<String> {
    let quoted = format!("\"{key}\"");
    let mut rest = json;
    while let Some(at) = rest.find(&quoted) {
        rest = &rest[at + quoted.len()..];
        let Some(text) = rest.trim_start().strip_prefix(':').map(str::trim_start) else { continue };
        // Names of containers contain no escapes.
        if let Some(text) = text.strip_prefix('"')
            && let Some(end) = text.find('"')
            && !text[..end].contains('\\')
        {
            return bounded(&text[..end]);
        }
    }
    None
}

impl Known {
    /// An empty cache; files are looked up below a root.
    pub fn below(root: &Path) -> Known {
        Known {
            root: root.into(),
            containers: HashMap::new(),
            pods: HashMap::new(),
            users: HashMap::new(),
            listed: false,
        }
    }

    /// The text of a file; `None` if it does not exist, or is too large.
    fn text(&self, path: &str) -> Option<String> {
        let file = Dir::root(&self.root).ok()?.open(path).ok()?;
        let mut bytes = Vec::new();
        file.take(BYTES + 1).read_to_end(&mut bytes).ok()?;
        (bytes.len() as u64 <= BYTES).then(|| String::from_utf8_lossy(&bytes).into_owned())
    }

    /// The names in a directory.
    fn list(&self, path: &str) -> Vec<String> {
        let entries = std::fs::read_dir(self.root.join(path)).into_iter().flatten().flatten();
        let names = entries.take(ENTRIES).map(|entry| entry.file_name());
        names.filter_map(|name| OsStr::to_str(&name).map(String::from)).collect()
    }

    /// Names that the runtime gave to a container.
    pub(super) fn container(&mut self, container: &Container) -> Option<Names> {
        // The ID becomes a directory name.
        if container.id.contains(['/', '\0']) || container.id.starts_with('.') {
            return None;
        }
        if let Some(known) = self.containers.get(&container.id) {
            return known.clone();
        }
        let found = self.look_for(container);
        if self.containers.len() >= KEPT {
            self.containers.clear();
        }
        self.containers.insert(container.id.clone(), found.clone());
        found
    }

    fn look_for(&self, container: &Container) -> Option<Names> {
        let id = &container.id;
        match container.runtime {
            Runtime::Lxc | Runtime::Machine => Some(Names { name: id.clone(), pod: None }),
            Runtime::Docker => self.docker(id),
            Runtime::Podman => self.podman(id),
            Runtime::CriO => self.kubelet(id).or_else(|| self.cri_o(id)),
            Runtime::Containerd => self.kubelet(id).or_else(|| self.containerd(id)),
            Runtime::Unknown => {
                let others = || self.docker(id).or_else(|| self.cri_o(id));
                self.kubelet(id).or_else(|| self.containerd(id)).or_else(others)
            }
        }
    }

    /// By kubelet's links: `POD_NAMESPACE_CONTAINER-ID.log`.
    fn kubelet(&self, id: &str) -> Option<Names> {
        let end = format!("-{id}.log");
        let list = self.list("var/log/containers");
        let name = list.iter().find_map(|name| name.strip_suffix(&end))?;
        let mut parts = name.splitn(3, '_');
        let (pod, namespace, container) = (parts.next()?, parts.next()?, parts.next()?);
        Some(Names { name: bounded(container)?, pod: bounded(&format!("{namespace}/{pod}")) })
    }

    fn docker(&self, id: &str) -> Option<Names> {
        let config = self.text(&format!("var/lib/docker/containers/{id}/config.v2.json"))?;
        let label = |key: &str| value(&config, key);
        let pod = label("io.kubernetes.pod.namespace").zip(label("io.kubernetes.pod.name"));
        let name = label("io.kubernetes.container.name").or_else(|| value(&config, "Name"))?;
        Some(Names { name, pod: pod.map(|(namespace, pod)| format!("{namespace}/{pod}")) })
    }

    fn containerd(&self, id: &str) -> Option<Names> {
        let at = |namespace: &str| {
            format!("run/containerd/io.containerd.runtime.v2.task/{namespace}/{id}/config.json")
        };
        let config = ["k8s.io", "default", "moby"].iter().find_map(|namespace| self.text(&at(namespace)))?;
        let label = |key: &str| value(&config, key);
        let pod = label("io.kubernetes.cri.sandbox-namespace").zip(label("io.kubernetes.cri.sandbox-name"));
        // The sandbox itself has no name.
        let name = label("io.kubernetes.cri.container-name").or_else(|| label("nerdctl/name"));
        Some(Names {
            name: name.or_else(|| pod.is_some().then(|| "pause".into()))?,
            pod: pod.map(|(namespace, pod)| format!("{namespace}/{pod}")),
        })
    }

    fn cri_o(&self, id: &str) -> Option<Names> {
        let config =
            self.text(&format!("run/containers/storage/overlay-containers/{id}/userdata/config.json"))?;
        let label = |key: &str| value(&config, key);
        let pod = label("io.kubernetes.pod.namespace").zip(label("io.kubernetes.pod.name"));
        let name = label("io.kubernetes.container.name").unwrap_or_else(|| "pause".into());
        Some(Names { name, pod: pod.map(|(namespace, pod)| format!("{namespace}/{pod}")) })
    }

    /// One list has all containers; a name follows the ID it belongs to.
    fn podman(&self, id: &str) -> Option<Names> {
        let list = self.text("var/lib/containers/storage/overlay-containers/containers.json")?;
        let entry = &list[list.find(&format!("\"id\":\"{id}\""))?..];
        let end = entry[1..].find("\"id\":").map_or(entry.len(), |end| end + 1);
        let names = entry[..end].split_once("\"names\":[\"")?.1;
        Some(Names { name: bounded(names.split('"').next()?)?, pod: None })
    }

    /// The name of a pod, by kubelet's directories: `NAMESPACE_NAME_UID`.
    pub(super) fn pod(&mut self, uid: &str) -> Option<String> {
        if let Some(known) = self.pods.get(uid) {
            return known.clone();
        }
        let end = format!("_{uid}");
        let list = self.list("var/log/pods");
        let found = list.iter().find_map(|name| name.strip_suffix(&end)?.split_once('_'));
        let found = found.and_then(|(namespace, pod)| bounded(&format!("{namespace}/{pod}")));
        if self.pods.len() >= KEPT {
            self.pods.clear();
        }
        self.pods.insert(uid.into(), found.clone());
        found
    }

    /// The name of a user, or its number.
    pub(super) fn user(&mut self, uid: u32) -> String {
        if !self.listed {
            self.listed = true;
            let text = self.text("etc/passwd").unwrap_or_default();
            for line in text.lines().take(KEPT) {
                // passwd(5): name:password:UID:GID:GECOS:directory:shell
                let mut fields = line.split(':');
                if let (Some(name), Some(uid)) =
                    (fields.next(), fields.nth(1).and_then(|uid| uid.parse().ok()))
                    && let Some(name) = bounded(name)
                {
                    self.users.entry(uid).or_insert(name);
                }
            }
        }
        self.users.get(&uid).cloned().unwrap_or_else(|| uid.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "3f9d0e4a5b6c7d8e9f00112233445566778899aabbccddeeff00112233445566";
    const UID: &str = "7a1d2c3b-4e5f-6071-8293-a4b5c6d7e8f9";

    fn write(root: &Path, path: &str, text: &str) {
        let path = root.join(path.replace("ID", ID));
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text.replace("ID", ID)).unwrap();
    }

    fn name(known: &mut Known, path: &str, by: By) -> String {
        Tenant::find(&path.replace("ID", ID).replace("POD", UID), "sh", 0, known).name(by)
    }

    /// Files as the runtimes write them, shortened.
    #[test]
    fn names_come_from_the_runtimes_files() {
        let cases = [
            (
                "var/lib/docker/containers/ID/config.v2.json",
                r#"{"State":{"Running":true},"ID":"ID","Name":"/web","Driver":"overlay2"}"#,
                "/docker/ID",
                "web",
            ),
            (
                "run/containerd/io.containerd.runtime.v2.task/k8s.io/ID/config.json",
                r#"{"ociVersion":"1.1.0","annotations":{"io.kubernetes.cri.container-name":"api",
                    "io.kubernetes.cri.sandbox-name":"shop-0","io.kubernetes.cri.sandbox-namespace":"prod"}}"#,
                "/kubepods/podPOD/ID",
                "prod/shop-0/api",
            ),
            (
                "run/containers/storage/overlay-containers/ID/userdata/config.json",
                r#"{"annotations":{"io.kubernetes.pod.name":"shop-1","io.kubernetes.pod.namespace":"prod",
                    "io.kubernetes.container.name":"db"}}"#,
                "/kubepods.slice/kubepods-podPOD.slice/crio-ID.scope",
                "prod/shop-1/db",
            ),
            (
                "var/lib/containers/storage/overlay-containers/containers.json",
                r#"[{"id":"00","names":["no"]},{"id":"ID","names":["web_1"],"image":"x"},{"id":"01","names":["no"]}]"#,
                "/machine.slice/libpod-ID.scope/container",
                "web_1",
            ),
            (
                "var/log/containers/shop-2_prod_queue-ID.log",
                "",
                "/kubepods/besteffort/podPOD/ID",
                "prod/shop-2/queue",
            ),
        ];
        for (file, text, path, expected) in cases {
            let root = tempfile::tempdir().unwrap();
            write(root.path(), file, text);
            let mut known = Known::below(root.path());
            assert_eq!(name(&mut known, path, By::Container), expected, "{file}");
            assert_eq!(name(&mut Known::below(Path::new("/nonexistent")), path, By::Program), "sh");
        }
        let root = tempfile::tempdir().unwrap();
        write(root.path(), &format!("var/log/pods/prod_shop-3_{UID}/x"), "");
        write(root.path(), "etc/passwd", "root:x:0:0::/root:/bin/sh\nann:x:1000:1000::/:/bin/sh\nbad\n");
        let mut known = Known::below(root.path());
        assert_eq!(name(&mut known, "/kubepods/podPOD", By::Tenant), "prod/shop-3");
        let session = "/user.slice/user-1000.slice/session-2.scope";
        assert_eq!(name(&mut known, session, By::Tenant), "ann, session 2");
        assert_eq!(name(&mut known, "/", By::User), "root");
    }

    #[test]
    fn rules_name_groups_by_path_or_name() {
        let rules = Rules::parse("# teams\n/system.slice/pg*  data base \n\n*.service services\n").unwrap();
        let mut known = Known::below(Path::new("/nonexistent"));
        let mut of = |path: &str| rules.name_of(&Tenant::find(path, "sh", 0, &mut known));
        assert_eq!(of("/system.slice/pg.service").as_deref(), Some("data base"));
        assert_eq!(of("/system.slice/x.service").as_deref(), Some("services"));
        assert_eq!(of("/x"), None);
        assert_eq!(Rules::parse("a b\n***x y").unwrap_err().split(':').next(), Some("line 2"));
        assert!(Rules::parse("alone").unwrap_err().contains("line 1: expected PATTERN NAME"));
    }

    #[test]
    fn what_is_kept_is_bounded_and_a_number_is_no_path() {
        let root = tempfile::tempdir().unwrap();
        let mut known = Known::below(root.path());
        for i in 0..3 * KEPT {
            assert_eq!(name(&mut known, &format!("/docker/{i:064x}"), By::Container), "docker 000000000000");
            known.pod(&i.to_string());
        }
        assert!(known.containers.len() <= KEPT && known.pods.len() <= KEPT);
        let up = Container { runtime: Runtime::Docker, id: "../../x".into() };
        assert_eq!(known.container(&up), None);
        write(
            root.path(),
            "var/lib/docker/containers/ID/config.v2.json",
            &format!("{{\"Name\":\"/{}\"}}", "n".repeat(9999)),
        );
        assert_eq!(name(&mut known, "/docker/ID", By::Container).len(), NAME);
    }
}
