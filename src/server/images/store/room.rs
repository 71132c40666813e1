//! Room for an image: what no START names goes, least recently used first. Quotas are checked when a push begins, for
//! all the bytes that the image will have, so that a push that has begun does not end for want of quota. What another
//! tenant has pushed lately stays ([`FRESH`]): the START that it was pushed for may be on its way.

use proto_frames::payload::{Digest, ImageFailure};
use tracing::{info, warn};

use super::{FRESH, Image, InUse, Refused, Store};

impl Store {
    /// Makes room for so many bytes of a tenant, in its quota and in that of all, or says why there is none. In this
    /// order: parts that nothing comes for, then images, of the tenant before those of any. What goes is removed only
    /// if that is enough.
    ///
    /// `in_use` takes the core's lock and is called only if images have to go.
    ///
    /// # Errors
    /// `quota`, with the flag that would help.
    pub(super) fn make_room(
        &mut self,
        bytes: u64,
        tenant: &str,
        in_use: impl FnOnce() -> InUse,
    ) -> Result<(), Refused> {
        // Chosen first and removed then: a push that does not fit evicts nothing. The tenant's own first, so that a
        // tenant that is over its quota does not evict what others have; what that frees counts for the whole as well.
        let whose = [Some(tenant), None];
        let mut parts = Vec::new();
        let left = whose.map(|whose| (whose, self.choose_parts(bytes, whose, &mut parts)));
        let mut chosen = Vec::new();
        if left.iter().any(|(_, excess)| *excess > 0) {
            let in_use = in_use();
            for (whose, excess) in left {
                self.choose(excess, (whose, tenant), &in_use, &mut chosen)
                    .map_err(|()| self.no_room(bytes, whose))?;
            }
        }
        for part in parts {
            self.drop_upload(&part)?;
        }
        for digest in chosen {
            info!(
                event = "image_evicted",
                "{digest} is evicted from the store of images: no START names it, and room is needed"
            );
            if let Err(error) = self.remove(&digest) {
                warn!(event = "image_not_deleted", "{digest}: {error}");
            }
        }
        Ok(())
    }

    /// Adds parts that nothing comes for, of a tenant or of all, to those that are chosen already, which are of this
    /// tenant too, until there is room for so many bytes. Returns how many are too many then all the same.
    fn choose_parts(&self, bytes: u64, tenant: Option<&str>, chosen: &mut Vec<Digest>) -> u64 {
        let is_own = |whose: &str| tenant.is_none_or(|tenant| tenant == whose);
        let mut idle = self.uploads.idle();
        idle.retain(|(_, whose, _)| is_own(whose));
        let is_chosen = |(digest, ..): &&(Digest, &str, u64)| chosen.contains(digest);
        let freed: u64 = idle.iter().filter(is_chosen).map(|(.., len)| len).sum();
        let mut excess = self.excess(bytes, tenant).saturating_sub(freed);
        for (digest, _, len) in idle {
            if excess > 0 && !chosen.contains(&digest) {
                excess = excess.saturating_sub(len);
                chosen.push(digest);
            }
        }
        excess
    }

    /// How many bytes are too many if so many come to those of a tenant, or of all (`None`). Walks over all images.
    fn excess(&self, bytes: u64, tenant: Option<&str>) -> u64 {
        let is_its = |whose: &str| tenant.is_none_or(|tenant| tenant == whose);
        let images = self.images.values();
        let images = images.map(|it| (it.owner.tenant.as_str(), it.bytes));
        let all = images.chain(self.uploads.bytes());
        let stored: u64 = all.filter(|(it, _)| is_its(it)).map(|(_, len)| len).sum();
        // `bytes` is what a pusher says, and may be anything: hence the saturating sum below.
        let quota = match tenant {
            Some(_) => self.quota.tenant,
            None => self.quota.all,
        };
        stored.saturating_add(bytes).saturating_sub(quota)
    }

    /// Adds images of a tenant, or of all, to those that are chosen already, until all of them have so many bytes
    /// together: least recently used first, and none that a START names, nor a fresh one of another tenant than the one
    /// that room is made for. `Err` if there are not enough.
    fn choose(
        &self,
        mut excess: u64,
        (tenant, pusher): (Option<&str>, &str),
        in_use: &InUse,
        chosen: &mut Vec<Digest>,
    ) -> Result<(), ()> {
        let bytes_of = |digest: &Digest| self.images.get(digest).map_or(0, |image| image.bytes);
        excess = excess.saturating_sub(chosen.iter().map(bytes_of).sum());
        let is_free = |digest: &Digest, image: &Image| {
            let owner = &*image.owner.tenant;
            tenant.is_none_or(|tenant| tenant == owner)
                && (owner == pusher || !image.is_fresh())
                && !in_use.contains(&digest.short())
        };
        let mut free: Vec<_> = self
            .images
            .iter()
            .filter(|(digest, image)| is_free(digest, image) && !chosen.contains(digest))
            .collect();
        // Least recently used first.
        free.sort_by_key(|(_, image)| image.used);
        for (digest, image) in free {
            if excess == 0 {
                break;
            }
            excess = excess.saturating_sub(image.bytes);
            chosen.push(*digest);
        }
        if excess == 0 { Ok(()) } else { Err(()) }
    }

    /// The refusal for want of room, by whose quota is in the way.
    fn no_room(&self, bytes: u64, tenant: Option<&str>) -> Refused {
        let (whose, quota, flag) = match tenant {
            Some(tenant) => (
                format!("tenant '{tenant}' may have"),
                self.quota.tenant,
                "--blob-tenant-quota",
            ),
            None => (
                "the store of images may have".to_owned(),
                self.quota.all,
                "--blob-quota",
            ),
        };
        let detail = format!(
            "no room for {bytes} bytes: {whose} {quota} ({flag} of the scheduler), and what is there is named by STARTs, \
             being pushed, or was pushed by others within {} min; delete what is not needed any more (ciaoctl images)",
            FRESH.as_secs() / 60
        );
        Refused::new(ImageFailure::Quota, detail)
    }
}
