//! Where this scheduler answers otherwise than the original did, and why. Everything else is the same.

/// One step in which one connection is told something else.
pub(crate) struct Difference {
    /// The step in the recording's index.
    pub(crate) step: &'static str,
    /// The connection.
    pub(crate) conn: &'static str,
    /// Why it is so.
    pub(crate) reason: &'static str,
    /// What it is told here, in the words of `crate::told`.
    pub(crate) ours: &'static [&'static str],
}

/// All of them. What differs in every run, and is therefore left out of the comparison: the scheduler's own UUID, and
/// the times it stamps on traces.
pub(crate) const DIFFERENCES: &[Difference] = &[
    Difference {
        step: "start-bad-yaml",
        conn: "controller",
        reason: "the original drops a START it cannot read, and its sender waits for ever",
        ours: &["ERROR StartFailure 0.1 from the scheduler, no trace: \
             node_uuid: \"\"\ninstance_uuid: \"\"\nreason: invalid_payload\nrestart: false\n"],
    },
    Difference {
        step: "attach-volume-bad",
        conn: "controller",
        reason: "the original drops an AttachVolume that names no node, and its sender waits for ever",
        ours: &[
            "ERROR AttachVolumeFailure 0.1 from the scheduler, no trace: \
             node_uuid: \"\"\ninstance_uuid: \"\"\nvolume_uuid: 67d86208-b46c-4465-9018-e14187d4010\nreason: invalid_data\n",
        ],
    },
    Difference {
        step: "raw-dual-role",
        conn: "controller2",
        reason: "the original tells twice that a node with both roles is lost, and its controllers crash on the second",
        ours: &[
            "EVENT NodeConnected 0.1 from the scheduler, no trace: node_connected:\n  \
             node_uuid: 33333333-3333-4333-8333-333333333333\n  node_type: compute_node\n",
            "EVENT NodeConnected 0.1 from the scheduler, no trace: node_connected:\n  \
             node_uuid: 33333333-3333-4333-8333-333333333333\n  node_type: network_node\n",
            "EVENT NodeDisconnected 0.1 from the scheduler, no trace: node_disconnected:\n  \
             node_uuid: 33333333-3333-4333-8333-333333333333\n  node_type: compute_node\n",
        ],
    },
];
