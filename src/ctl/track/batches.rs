//! Which STARTs of a command wait for the rest of their batch, which it does not send.

use std::collections::HashMap;

use proto_frames::payload::peek;
use proto_frames::payload::scheduling::Batch;

use crate::ctl::start_file::StartRequest;

/// The STARTs of batches of which these are not all, by instance, with what each waits for.
///
/// Nothing is placed of a batch before all its STARTs have come; the others may come from elsewhere.
pub(super) fn incomplete(requests: &[StartRequest]) -> HashMap<&str, String> {
    let batches: Vec<(&str, Batch)> = requests
        .iter()
        .filter_map(|request| Some((request.instance_uuid.as_str(), batch_of(request)?)))
        .collect();
    let mut here: HashMap<&str, usize> = HashMap::new();
    for (_, batch) in &batches {
        *here.entry(&batch.id).or_default() += 1;
    }
    let waits = |batch: &Batch| {
        let (id, count) = (&batch.id, batch.count);
        let sent = here.get(id.as_str()).copied().unwrap_or(0);
        (sent < count as usize).then(|| {
            format!(
                "it waits for the rest of batch '{id}', of whose {count} STARTs this command sends {sent}: none is \
                 placed before all have come"
            )
        })
    };
    batches
        .iter()
        .filter_map(|(instance, batch)| Some((*instance, waits(batch)?)))
        .collect()
}

fn batch_of(request: &StartRequest) -> Option<Batch> {
    peek::start(&request.payload).ok()?.scheduling?.batch
}
