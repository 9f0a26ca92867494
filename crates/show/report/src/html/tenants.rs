//! Losses of tenants to each other as a heat map: the darkest field is the largest loss. Only of a whole machine.

use std::collections::BTreeMap;
use std::fmt::Write;

use ncpu_record::Recording;

use super::markup::{esc, seconds};
use crate::tenants::{Lost, Naming, Tenancy, column, sentence};

/// Rows and columns at most.
const MOST: usize = 16;

pub(super) fn section(out: &mut String, recording: &Recording) -> Result<(), ncpu_schema::Error> {
    let Some(tenancy) = Tenancy::of(recording, &Naming::default())? else { return Ok(()) };
    let (mut victims, mut culprits) = (BTreeMap::<&str, f64>::new(), BTreeMap::<&str, f64>::new());
    for lost in &tenancy.losses {
        let culprit = column(lost);
        *victims.entry(&lost.victim).or_default() += lost.threads;
        *culprits.entry(culprit).or_default() += lost.threads;
    }
    let largest = |sums: BTreeMap<&'_ str, f64>| {
        let mut sums: Vec<(String, f64)> = sums.into_iter().map(|(name, s)| (name.to_string(), s)).collect();
        sums.sort_by(|a, b| b.1.total_cmp(&a.1));
        sums.truncate(MOST);
        sums
    };
    let (victims, culprits) = (largest(victims), largest(culprits));
    if victims.is_empty() {
        return Ok(());
    }
    let of = |victim: &str, culprit: &str| -> Vec<&Lost> {
        let both = |lost: &&Lost| lost.victim == victim && column(lost) == culprit;
        tenancy.losses.iter().filter(both).collect()
    };
    let sum = |losses: &[&Lost]| losses.iter().map(|lost| lost.threads).sum::<f64>();
    let most = victims
        .iter()
        .flat_map(|(victim, _)| culprits.iter().map(|(culprit, _)| sum(&of(victim, culprit))))
        .fold(f64::MIN_POSITIVE, f64::max);
    let _ = write!(
        out,
        "<section id=tenants><h2>Who takes whose capacity</h2><p class=verdict>{}</p>\
         <div class=scroll tabindex=0 role=region aria-label=\"Losses of tenants\"><table class=heat>\
         <caption>Thread-seconds that the tenant of the row lost because of the one of the column</caption><thead><tr>\
         <th scope=col>loses</th>",
        esc(&sentence(&tenancy))
    );
    for (culprit, _) in &culprits {
        let _ = write!(out, "<th scope=col>{}</th>", esc(culprit));
    }
    out.push_str("<th scope=col>all</th></tr></thead><tbody>");
    for (victim, all) in &victims {
        let _ = write!(out, "<tr><th scope=row>{}</th>", esc(victim));
        for (culprit, _) in &culprits {
            let losses = of(victim, culprit);
            let lost = sum(&losses);
            let mut causes: BTreeMap<&str, f64> = BTreeMap::new();
            for one in &losses {
                *causes.entry(one.lock.as_deref().unwrap_or(one.cause.name())).or_default() += one.threads;
            }
            let causes: Vec<String> =
                causes.iter().map(|(cause, s)| format!("{cause} {} s", seconds(*s))).collect();
            let heat = (lost / most).sqrt().clamp(0.0, 1.0);
            let figure = if lost < 0.005 { String::new() } else { seconds(lost) };
            let _ = write!(
                out,
                "<td style=\"--heat:{heat:.3}\" title=\"{}\">{figure}</td>",
                esc(&causes.join(", "))
            );
        }
        let _ = write!(out, "<td>{}</td></tr>", seconds(*all));
    }
    out.push_str("</tbody></table></div></section>");
    Ok(())
}
