//! What is not well with several schedulers behind one name, and with the etcd that they share.

use sched_model::{ConditionView, SchedulersView};

/// How full the database of etcd may be, in hundredths of what it may have, before it is said: there is time to make room.
const FULL_PERCENT: i64 = 80;

/// What is not well: nothing where another could lead at once, and etcd is as it should be.
pub(in crate::server) fn of_schedulers(view: &SchedulersView) -> Vec<ConditionView> {
    let mut found = Vec::new();
    let mut say = |kind: &str, severity: &str, what: String, advice: &str| {
        found.push(ConditionView {
            kind: kind.to_owned(),
            severity: severity.to_owned(),
            what,
            advice: advice.to_owned(),
            ..ConditionView::default()
        });
    };
    if view.standby.is_empty() {
        let what = "no other scheduler stands by: none takes over when this one is gone";
        let advice = "start another with the same --cluster and --etcd";
        say("no_standby", "warning", what.to_owned(), advice);
    }
    for alarm in &view.etcd_alarms {
        let what = format!("etcd has raised an alarm: {alarm}");
        let advice = "`ciao-scheduler ha status` names the commands that mend it";
        say("etcd_alarm", "error", what, advice);
    }
    let silent = view.etcd_members - view.etcd_answering;
    if silent > 0 {
        let what = format!(
            "{silent} of {} members of etcd do not answer",
            view.etcd_members
        );
        let advice = "`ciao-scheduler ha status` names them; etcd needs more than half of them";
        say("etcd_member", "warning", what, advice);
    }
    if let Some(percent) = filled(view).filter(|it| *it >= FULL_PERCENT) {
        let what = format!("the database of etcd is filled to {percent} %");
        let advice = "etcd takes no writes once it is full: `etcdctl defrag` gives back what is not in use, \
                      --quota-backend-bytes sets how large it may be";
        say("etcd_fills", "warning", what, advice);
    }
    found
}

/// How full it is, in hundredths.
fn filled(view: &SchedulersView) -> Option<i64> {
    (view.etcd_bytes.max(0) * 100).checked_div(view.etcd_quota)
}

#[cfg(test)]
mod tests {
    use sched_model::SchedulersView;

    use super::of_schedulers;

    #[test]
    fn what_is_not_well_is_named_with_what_to_do() {
        let well = SchedulersView {
            standby: vec!["b:8888".to_owned()],
            etcd_members: 3,
            etcd_answering: 3,
            etcd_bytes: 79,
            etcd_quota: 100,
            ..SchedulersView::default()
        };
        assert_eq!(of_schedulers(&well), []);
        let ill = SchedulersView {
            standby: Vec::new(),
            etcd_answering: 2,
            etcd_bytes: 80,
            etcd_alarms: vec!["NOSPACE".to_owned()],
            ..well
        };
        let found = of_schedulers(&ill);
        let kinds: Vec<&str> = found.iter().map(|it| &*it.kind).collect();
        assert_eq!(
            kinds,
            ["no_standby", "etcd_alarm", "etcd_member", "etcd_fills"]
        );
        assert_eq!(found[2].what, "1 of 3 members of etcd do not answer");
        assert_eq!(found[3].what, "the database of etcd is filled to 80 %");
    }
}
