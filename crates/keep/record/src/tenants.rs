//! Tenants in a recording.

use ncpu_machine::tenant::{Tenant, name_jobs};
use ncpu_schema::{Error, Tables, tenant_names};

/// The number of the kernel's own threads.
const KERNEL: u64 = 1;

/// The first number of an observed tenant. Lower numbers have a fixed meaning in every recording, and the
/// program of such a row is its name.
pub const FIRST: u64 = 4;

/// The tenants of table `tenant_names`, with their numbers; `None` if a recording lacks the table.
///
/// # Errors
/// The table does not match the schema.
pub fn read(recording: &impl Tables) -> Result<Option<Vec<(u64, Tenant)>>, Error> {
    let Some(known) = tenant_names::Reader::open(recording)? else { return Ok(None) };
    let text = |cell: Option<&str>| cell.map(String::from);
    let tenant = |row| {
        let id = known.tenant.get(row)?;
        let tenant = Tenant {
            cgroup: known.cgroup.get(row).unwrap_or_default().into(),
            program: known.program.get(row).unwrap_or_default().into(),
            unit: text(known.unit.get(row)),
            pod: text(known.pod.get(row)),
            container: text(known.container.get(row)),
            job: text(known.job.get(row)),
            job_name: text(known.job_name.get(row)),
            step: text(known.step.get(row)),
            user: text(known.user.get(row)),
            session: text(known.session.get(row)),
            kernel: id == KERNEL,
        };
        Some((id, tenant))
    };
    let mut tenants: Vec<(u64, Tenant)> = known.rows().filter_map(tenant).collect();
    name_jobs(&mut tenants);
    Ok(Some(tenants))
}
