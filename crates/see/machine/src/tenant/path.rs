//! Names in the path of a control group, as chosen by service managers, container runtimes and batch systems.

use std::borrow::Cow;

/// Bytes of a path that are parsed; the beginning of a longer path is left out.
const LONGEST: usize = 4096;
/// Components that are parsed, and characters kept of one.
const DEEPEST: usize = 64;
const NAME: usize = 255;

/// Runtime of a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Runtime {
    /// Docker.
    Docker,
    /// containerd, through Kubernetes' interface or nerdctl.
    Containerd,
    /// CRI-O.
    CriO,
    /// Podman.
    Podman,
    /// LXC.
    Lxc,
    /// systemd-nspawn, and virtual machines of systemd-machined.
    Machine,
    /// Another, not named in the path.
    Unknown,
}

impl Runtime {
    /// The name in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Runtime::Docker => "docker",
            Runtime::Containerd => "containerd",
            Runtime::CriO => "cri-o",
            Runtime::Podman => "podman",
            Runtime::Lxc => "lxc",
            Runtime::Machine => "machine",
            Runtime::Unknown => "container",
        }
    }
}

/// A container: its runtime, and the ID or name that the runtime gave it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Container {
    /// The runtime.
    pub runtime: Runtime,
    /// Usually 64 hexadecimal digits.
    pub id: String,
}

impl Container {
    /// Its fallback name: the first 12 digits of an ID, as runtimes print it.
    pub fn short(&self) -> String {
        let id = match is_hex(&self.id, 64) || is_hex(&self.id, 32) {
            true => &self.id[..12],
            false => &self.id,
        };
        format!("{} {id}", self.runtime.name())
    }
}

/// A job of a batch system.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Job {
    /// The system: `slurm`, `pbs`, `htcondor`.
    pub system: &'static str,
    /// Its number.
    pub id: String,
    /// A step of it: `0`, `batch`, `extern`.
    pub step: Option<String>,
}

/// Parts of a path that have a meaning.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// The innermost unit of systemd that is a service or a scope of its own, except sessions and containers.
    pub unit: Option<String>,
    /// The innermost slice.
    pub slice: Option<String>,
    /// UID of a pod of Kubernetes, with dashes.
    pub pod: Option<String>,
    /// The container: in a pod the one inside it, otherwise the outermost.
    pub container: Option<Container>,
    /// The job, and its step.
    pub job: Option<Job>,
    /// User of the slice or job.
    pub user: Option<u32>,
    /// The user's session.
    pub session: Option<String>,
}

fn is_hex(text: &str, digits: usize) -> bool {
    text.len() == digits && text.bytes().all(|b| b.is_ascii_hexdigit())
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.len() <= 20 && text.bytes().all(|b| b.is_ascii_digit())
}

/// A name with systemd's escapes (`\x2d`) decoded, except of characters that would change how a line looks.
fn unescape(name: &str) -> Cow<'_, str> {
    if !name.contains("\\x") {
        return name.into();
    }
    let mut out = Vec::with_capacity(name.len());
    let mut rest = name;
    while let Some(at) = rest.find("\\x") {
        let (before, escape) = rest.split_at(at);
        out.extend(before.bytes());
        let code = escape.get(2..4).and_then(|hex| u8::from_str_radix(hex, 16).ok());
        match code.filter(|c| c.is_ascii_graphic() || *c == b' ') {
            Some(c) => {
                out.push(c);
                rest = &escape[4..];
            }
            None => {
                out.extend(b"\\x");
                rest = &escape[2..];
            }
        }
    }
    out.extend(rest.bytes());
    String::from_utf8(out).map_or_else(|_| name.into(), Cow::Owned)
}

/// A name as it is stored: bounded.
fn kept(name: &str) -> String {
    name.chars().take(NAME).collect()
}

/// A UID of a pod as Kubernetes writes it, from a name of a group: systemd's names have `_` for `-`. A static
/// pod's UID is a hash.
fn pod_uid(text: &str) -> Option<String> {
    let uid = text.replace('_', "-");
    let dashed = uid.len() == 36
        && uid.bytes().enumerate().all(|(i, b)| match i {
            8 | 13 | 18 | 23 => b == b'-',
            _ => b.is_ascii_hexdigit(),
        });
    (dashed || is_hex(&uid, 32)).then_some(uid)
}

/// A component for a pod's group: `pod<UID>`, `kubepods-burstable-pod<UID>.slice`.
fn pod(component: &str) -> Option<String> {
    let name = component.strip_suffix(".slice").unwrap_or(component);
    let at = match name.strip_prefix("pod") {
        Some(uid) => uid,
        None => name.rsplit_once("-pod").filter(|(before, _)| before.contains("kubepods"))?.1,
    };
    pod_uid(at)
}

/// A component that names its runtime itself.
fn container(component: &str) -> Option<Container> {
    let of = |runtime, id: &str| Some(Container { runtime, id: kept(id) });
    // A name in the form for systemd that a runtime used when it made groups itself.
    if let [_, runtime, id] = component.split(':').collect::<Vec<_>>()[..]
        && is_hex(id, 64)
    {
        let runtime = match runtime {
            "cri-containerd" => Runtime::Containerd,
            "crio" => Runtime::CriO,
            "docker" => Runtime::Docker,
            _ => Runtime::Unknown,
        };
        return of(runtime, id);
    }
    let name = component.strip_suffix(".scope").unwrap_or(component);
    // The monitor of a container belongs to the container.
    let runtimes = [
        ("docker-", Runtime::Docker),
        ("cri-containerd-", Runtime::Containerd),
        ("nerdctl-", Runtime::Containerd),
        ("crio-conmon-", Runtime::CriO),
        ("crio-", Runtime::CriO),
        ("libpod-conmon-", Runtime::Podman),
        ("libpod-", Runtime::Podman),
    ];
    for (prefix, runtime) in runtimes {
        if let Some(id) = name.strip_prefix(prefix)
            && is_hex(id, 64)
        {
            return of(runtime, id);
        }
    }
    for prefix in ["lxc.payload.", "lxc.monitor."] {
        if let Some(id) = component.strip_prefix(prefix).filter(|id| !id.is_empty()) {
            return of(Runtime::Lxc, id);
        }
    }
    if let Some(id) = component.strip_prefix("systemd-nspawn@").and_then(|rest| rest.strip_suffix(".service"))
    {
        return of(Runtime::Machine, &unescape(id));
    }
    if let Some(id) = component.strip_prefix("machine-").and_then(|rest| rest.strip_suffix(".scope")) {
        return of(Runtime::Machine, &unescape(id));
    }
    None
}

/// A container recognised by its parent: a bare ID below a runtime's group, or a name below LXC's.
fn container_below(parent: &str, component: &str) -> Option<Container> {
    let of = |runtime| Some(Container { runtime, id: kept(component) });
    match parent {
        "lxc" | "lxc.payload" | "lxc.monitor" if !component.is_empty() => of(Runtime::Lxc),
        "docker" | "buildkit" if is_hex(component, 64) => of(Runtime::Docker),
        "libpod_parent" if component.starts_with("libpod-") => {
            Some(Container { runtime: Runtime::Podman, id: kept(&component[7..]) })
        }
        // A namespace of containerd.
        "default" | "k8s.io" | "moby" if is_hex(component, 64) => of(Runtime::Containerd),
        _ if is_hex(component, 64) => of(Runtime::Unknown),
        _ => None,
    }
}

/// Parts of a job of Slurm: `job_123`, `step_0`, `uid_1000`.
fn slurm(place: &mut Place, component: &str) {
    if let Some(id) = component.strip_prefix("job_").filter(|id| is_number(id)) {
        place.job = Some(Job { system: "slurm", id: id.into(), step: None });
    } else if let Some(step) = component.strip_prefix("step_") {
        if let Some(job) = place.job.as_mut().filter(|job| job.step.is_none() && !step.is_empty()) {
            job.step = Some(kept(step));
        }
    } else if let Some(uid) = component.strip_prefix("uid_").and_then(|uid| uid.parse().ok()) {
        place.user = place.user.or(Some(uid));
    }
}

/// A job of another batch system.
fn other_job(parent: &str, component: &str) -> Option<Job> {
    let of = |system, id: &str| Some(Job { system, id: kept(id), step: None });
    if let Some(id) = component.strip_prefix("pbspro-").or_else(|| component.strip_prefix("pbs_jobs-")) {
        return of("pbs", id.strip_suffix(".slice").unwrap_or(id));
    }
    if parent == "jobid" && component.starts_with(|c: char| c.is_ascii_digit()) {
        return of("pbs", component);
    }
    (parent == "htcondor" && !component.is_empty()).then(|| of("htcondor", component))?
}

impl Place {
    /// Parses the path of a control group. Any text is accepted; unknown components are skipped.
    pub fn parse(path: &str) -> Place {
        let mut from = path.len().saturating_sub(LONGEST);
        while !path.is_char_boundary(from) {
            from += 1;
        }
        let mut place = Place::default();
        let (mut parent, mut of_slurm) = ("", false);
        for component in path[from..].split('/').filter(|c| !c.is_empty()).take(DEEPEST) {
            place.descend(parent, component, &mut of_slurm);
            parent = component;
        }
        place
    }

    fn descend(&mut self, parent: &str, component: &str, of_slurm: &mut bool) {
        // A name in the form for systemd that was used directly has the pod before the container.
        if let Some(uid) = pod(component.split(':').next().unwrap_or(component)) {
            // From here on the container is one of this pod; the unit belongs to the node's runtime.
            *self = Place { pod: Some(uid), container: container(component), ..Place::default() };
            return;
        }
        // Of nested containers the outermost, and in a pod the one inside it.
        if self.container.is_none()
            && let Some(found) = container(component).or_else(|| container_below(parent, component))
        {
            self.container = Some(found);
            return;
        }
        // Groups inside a container belong to the container.
        if self.container.is_some() || self.pod.is_some() {
            return;
        }
        *of_slurm |= component == "slurm"
            || component.starts_with("slurm_")
            || (component.ends_with("slurmstepd.scope") && self.unit.is_none());
        if *of_slurm {
            return slurm(self, component);
        }
        if self.job.is_none() {
            self.job = other_job(parent, component);
        }
        self.systemd(component);
    }

    /// Units: services, scopes, slices, sessions.
    fn systemd(&mut self, component: &str) {
        if let Some(slice) = component.strip_suffix(".slice") {
            if let Some(uid) = slice.strip_prefix("user-").and_then(|uid| uid.parse().ok()) {
                self.user = Some(uid);
            }
            self.slice = Some(kept(&unescape(component)));
            return;
        }
        if let Some(scope) = component.strip_suffix(".scope") {
            match scope.strip_prefix("session-").filter(|_| self.user.is_some()) {
                Some(session) => self.session = Some(kept(session)),
                None => self.unit = Some(kept(&unescape(component))),
            }
        } else if let Some(service) = component.strip_suffix(".service") {
            // The manager of a user's own units: its units come below.
            match service.strip_prefix("user@").and_then(|uid| uid.parse().ok()) {
                Some(uid) => self.user = Some(uid),
                None => self.unit = Some(kept(&unescape(component))),
            }
        } else if [".socket", ".mount", ".swap"].iter().any(|end| component.ends_with(end)) {
            self.unit = Some(kept(&unescape(component)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ID: &str = "3f9d0e4a5b6c7d8e9f00112233445566778899aabbccddeeff00112233445566";
    const UID: &str = "7a1d2c3b-4e5f-6071-8293-a4b5c6d7e8f9";

    fn words(path: &str) -> String {
        let path = path.replace("UID_", &UID.replace('-', "_")).replace("POD", UID).replace("ID", ID);
        let place = Place::parse(&path);
        let mut out = Vec::new();
        out.extend(place.pod.map(|uid| format!("pod {}", uid.replace(UID, "POD"))));
        out.extend(place.container.map(|c| format!("{} {}", c.runtime.name(), c.id.replace(ID, "ID"))));
        out.extend(place.job.map(|job| {
            let step = job.step.map_or_else(String::new, |step| format!(" step {step}"));
            format!("{} job {}{step}", job.system, job.id)
        }));
        out.extend(place.unit.map(|unit| format!("unit {unit}")));
        out.extend(place.user.map(|user| format!("user {user}")));
        out.extend(place.session.map(|session| format!("session {session}")));
        out.join(", ")
    }

    /// Paths as made by the programs named in the comments.
    #[test]
    fn paths_of_services_containers_pods_and_jobs() {
        for (path, expected) in [
            // systemd, versions 1 and 2
            ("/system.slice/nginx.service", "unit nginx.service"),
            ("/system.slice/system-getty.slice/getty@tty1.service", "unit getty@tty1.service"),
            ("/system.slice/run-u7.scope", "unit run-u7.scope"),
            (r"/system.slice/system-modprobe.slice/dev\x2dvda.service", "unit dev-vda.service"),
            ("/system.slice/postgresql.service/worker", "unit postgresql.service"),
            ("/system.slice/dbus.socket", "unit dbus.socket"),
            ("/init.scope", "unit init.scope"),
            ("/user.slice/user-1000.slice/session-3.scope", "user 1000, session 3"),
            ("/user.slice/user-1000.slice/user@1000.service/init.scope", "unit init.scope, user 1000"),
            (
                "/user.slice/user-1000.slice/user@1000.service/app.slice/app-firefox-4242.scope",
                "unit app-firefox-4242.scope, user 1000",
            ),
            // Docker: systemd's and its own groups, in Docker, a build
            ("/system.slice/docker-ID.scope", "docker ID"),
            ("/docker/ID", "docker ID"),
            ("/docker/ID/system.slice/cron.service", "docker ID"),
            ("/docker/ID/docker/ID", "docker ID"),
            ("/docker/buildkit/ID", "docker ID"),
            ("/user.slice/user-1000.slice/user@1000.service/docker-ID.scope", "docker ID, user 1000"),
            // containerd: nerdctl, ctr
            ("/system.slice/nerdctl-ID.scope", "containerd ID"),
            ("/default/ID", "containerd ID"),
            // Podman: root's, a user's, its own groups, the monitor, podman in systemd's service
            ("/machine.slice/libpod-ID.scope", "podman ID"),
            ("/machine.slice/libpod-ID.scope/container", "podman ID"),
            (
                "/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-ID.scope/container",
                "podman ID, user 1000",
            ),
            ("/libpod_parent/libpod-ID", "podman ID"),
            ("/machine.slice/libpod-conmon-ID.scope", "podman ID"),
            // LXC, LXD, nspawn, libvirt
            ("/lxc/web1", "lxc web1"),
            ("/lxc.payload.web1/system.slice/nginx.service", "lxc web1"),
            ("/lxc.payload/web1", "lxc web1"),
            ("/machine.slice/systemd-nspawn@web.service/payload", "machine web"),
            (r"/machine.slice/machine-qemu\x2d1\x2dvm.scope/emulator", "machine qemu-1-vm"),
            // Kubernetes: containerd and CRI-O, systemd's and cgroupfs' names, each quality of service
            ("/kubepods.slice/kubepods-podUID_.slice/cri-containerd-ID.scope", "pod POD, containerd ID"),
            (
                "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podUID_.slice/cri-containerd-ID.scope",
                "pod POD, containerd ID",
            ),
            (
                "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-podUID_.slice/crio-ID.scope",
                "pod POD, cri-o ID",
            ),
            (
                "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-podUID_.slice/crio-conmon-ID.scope",
                "pod POD, cri-o ID",
            ),
            ("/kubepods/besteffort/podPOD/ID", "pod POD, container ID"),
            ("/kubepods/podPOD/ID", "pod POD, container ID"),
            ("/kubepods/burstable/podPOD", "pod POD"),
            (
                "/system.slice/containerd.service/kubepods-burstable-podUID_.slice:cri-containerd:ID",
                "pod POD, containerd ID",
            ),
            // dockershim
            ("/kubepods.slice/kubepods-podUID_.slice/docker-ID.scope", "pod POD, docker ID"),
            // a static pod, and Kubernetes in Docker
            (
                "/kubepods/burstable/pod0123456789abcdef0123456789abcdef/ID",
                "pod 0123456789abcdef0123456789abcdef, container ID",
            ),
            (
                "/docker/ID/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-podUID_.slice/cri-containerd-ID.scope",
                "pod POD, containerd ID",
            ),
            // ECS
            ("/ecs/0123456789abcdef0123456789abcdef/ID", "container ID"),
            // Slurm: version 1 and 2
            ("/slurm/uid_1000/job_123/step_0/task_1", "slurm job 123 step 0, user 1000"),
            ("/slurm_node7/uid_1000/job_123/step_batch", "slurm job 123 step batch, user 1000"),
            ("/system.slice/slurmstepd.scope/job_123/step_0/user/task_0", "slurm job 123 step 0"),
            ("/system.slice/node7_slurmstepd.scope/job_123/step_extern/user", "slurm job 123 step extern"),
            ("/system.slice/slurmd.service", "unit slurmd.service"),
            // PBS, HTCondor
            ("/pbspro.slice/pbspro-123.server.slice", "pbs job 123.server"),
            ("/pbs_jobs.service/jobid/123.server", "pbs job 123.server, unit pbs_jobs.service"),
            ("/htcondor/condor_var_lib_slot1_1@node", "htcondor job condor_var_lib_slot1_1@node"),
            // No owner.
            ("/", ""),
            ("", ""),
            ("/batch", ""),
            ("/job_7", ""),
            ("/pod12", ""),
            ("/docker", ""),
            ("/docker/short", ""),
        ] {
            assert_eq!(words(path), expected, "{path}");
        }
    }

    #[test]
    fn names_are_bounded_and_escapes_that_would_hide_stay() {
        let long = format!("/system.slice/{}.service", "ä".repeat(10_000));
        assert!(Place::parse(&long).unit.is_none_or(|unit| unit.chars().count() <= NAME));
        assert_eq!(Place::parse(r"/a/b\x1b[2J.service").unit.as_deref(), Some(r"b\x1b[2J.service"));
        assert_eq!(Place::parse(r"/a/b\x.service").unit.as_deref(), Some(r"b\x.service"));
        assert_eq!(Place::parse(r"/a/b\xé9.service").unit.as_deref(), Some(r"b\xé9.service"));
        let deep = "/a".repeat(100_000) + "/x.service";
        assert!(Place::parse(&deep).unit.is_none_or(|unit| unit == "x.service"));
    }

    #[test]
    fn a_container_is_called_by_its_first_digits_or_its_name() {
        let of = |path: &str| Place::parse(&path.replace("ID", ID)).container.map(|c| c.short());
        assert_eq!(of("/docker/ID").as_deref(), Some("docker 3f9d0e4a5b6c"));
        assert_eq!(of("/lxc/web1").as_deref(), Some("lxc web1"));
    }

    proptest! {
        #[test]
        fn any_path_is_read(path in "(/(kubepods|pod|docker|libpod|user|job_|step_|\\\\x2d|[a-f0-9_:@.-]|é|slice|scope|service){0,9}){0,9}") {
            let place = Place::parse(&path);
            prop_assert!(place.unit.is_none_or(|unit| unit.chars().count() <= NAME));
        }
    }
}
