//! `--by`, `--names`, `--culprits`, `--victims`: tenants and their losses to each other.

use std::path::PathBuf;

use anyhow::Context;
use clap::Args;
use ncpu_machine::tenant::{By, Rules};
use ncpu_record::Recording;
use ncpu_report::tenants::{Naming, Tenancy};

/// How tenants of a machine are shown.
#[derive(Args, Clone, Debug)]
pub struct TenantArgs {
    /// Print the capacity that each tenant has and its losses to others: grouped by tenant (pod, container, job, service or session; else the
    /// program), unit, pod, container, job, user, program or cgroup=DEPTH. For observations of the whole machine
    #[arg(long, value_name = "LEVEL")]
    by: Option<By>,

    /// Names of tenants: a line `PATTERN NAME` each, where PATTERN fits the path of the control group or the tenant's name
    #[arg(long, value_name = "FILE")]
    names: Option<PathBuf>,

    /// Show only the losses of tenants with NAME in their name
    #[arg(long, value_name = "NAME")]
    culprits: Option<String>,

    /// Show only the losses that tenants with NAME in their name caused
    #[arg(long, value_name = "NAME")]
    victims: Option<String>,
}

impl TenantArgs {
    /// Whether tenants are asked for.
    pub fn is_given(&self) -> bool {
        self.by.is_some() || self.names.is_some() || self.culprits.is_some() || self.victims.is_some()
    }

    /// How tenants are put together and called.
    ///
    /// # Errors
    /// The file of names cannot be read, or is not one.
    pub fn naming(&self) -> anyhow::Result<Naming> {
        let rules = match &self.names {
            Some(file) => {
                let text = ncpu_files::text(file).with_context(|| format!("--names {}", file.display()))?;
                Rules::parse(&text).map_err(|why| anyhow::anyhow!("--names {}: {why}", file.display()))?
            }
            None => Rules::default(),
        };
        Ok(Naming { by: self.by.unwrap_or_default(), rules })
    }

    /// The tenants of an observation.
    ///
    /// # Errors
    /// It has none, or a table is not what the schema says.
    pub fn read(&self, recording: &Recording) -> anyhow::Result<Tenancy> {
        let tenancy = Tenancy::need(recording, &self.naming()?).map_err(|why| anyhow::anyhow!(why))?;
        // The culprits of a tenant are those that it loses to.
        Ok(tenancy.only(self.culprits.as_deref(), self.victims.as_deref()))
    }
}
