/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Numbers that the BPF programs and user space share: sizes of tables, and the numbers of policies, rules and parser
 * options. Part of steer_shared.h, which describes how user space gets them.
 */
#ifndef STEER_LIMITS_H
#define STEER_LIMITS_H

enum steer_limits {
	STEER_MAX_CPUS = 1024,
	STEER_GENERATIONS = 2,
	/* Devices are stored by ifindex modulo this number. */
	STEER_MAX_DEVICES = 1024,
	STEER_MAX_LOOPS = 5,
	/* Sparse slots of one CPU in the table; the first `loops` are used. */
	STEER_SPARSE_ROW = 8,
	STEER_HYSTERESIS = 7,
	STEER_FLOW_LIMIT_HISTORY = 128,
	/* In tables of CPUs: no CPU. */
	STEER_NO_CPU = 0xffff,
	/* The most CPU maps of a configuration (map 0 is the general one), and the most CPUs in all its maps
	 * together. */
	STEER_MAX_MAPS = 128,
	STEER_MAP_ENTRIES = 8192,
	/* The row of an RX queue that has none: an index beyond any table. */
	STEER_NO_ROW = 0x7fffffff,
	/* Lines in one set of flow statistics. A flow is in one of these lines, or in one of its second set. */
	STEER_WAYS = 4,
	/* CPUs with separate counts of a flow, besides its present CPU. All other CPUs are counted together. */
	STEER_SHARES = 7,
	/* In a list of CPUs plus one: several CPUs that are counted together. */
	STEER_OTHER_CPUS = 0xffff,
	/* Destination addresses of frames that can be distinguished; see steer_seq.h. */
	STEER_ADDRESSES_LOG = 10,
	STEER_ADDRESSES = 1 << STEER_ADDRESSES_LOG,
	/* Elements of a struct steer_line, and of a struct steer_bytes. */
	STEER_LINE_WORDS = 16,
	STEER_LINE_BYTES = 64,
	/* The multiplier of steer_hash_32: the kernel's GOLDEN_RATIO_32. */
	STEER_GOLDEN_RATIO = 0x61c88647,
	/* Distinguishes the two directions of a flow in the sock flow table; see steer_sock_hash. */
	STEER_REVERSED = 0x5851f42d,
	/* The number of remembered flows with partial checksums. */
	STEER_PARTIALS = 4096,
	/* There are two ordinary configurations. `steer_active` selects the active one, so that the other can be
	 * rewritten. A third configuration applies to interfaces that flush. */
	STEER_CONFIG_FLUSHING = 2,
	STEER_CONFIGS = 3,
	/* Words of a struct steer_sent, and buckets of a struct steer_delays. */
	STEER_SENT_WORDS = 8,
	STEER_DELAY_BUCKETS = 132,
	/* The most buckets of a table; one of how many packets of a bucket votes for its flow; the most votes.
	 * rxsteer-core/src/balance.rs explains them. */
	STEER_MAX_BUCKETS = 4096,
	STEER_BUCKET_SAMPLE = 8,
	STEER_MAX_VOTES = 32,
	/* Flows that may be admitted to sparse slots: the logarithm of the number of sets of an RX CPU, and where the
	 * packets are in a flow's word. rxsteer-core/src/admission.rs explains them. */
	STEER_SETS_LOG = 10,
	STEER_PACKETS_SHIFT = 56,
	/* The most rules before the policy, and the words of a set of rules with a bit for each. */
	STEER_MAX_RULES = 256,
	STEER_RULE_WORDS = 4,
	/* Different sets of rules in the tables of one configuration. */
	STEER_RULE_SETS = 8192,
	/* Counters of matched rules: a rule keeps its counter while another configuration with other rules is written. */
	STEER_RULE_COUNTERS = 512,
	/* Numbers of interfaces that rules can match. */
	STEER_RULE_INTERFACES = 64,
	/* Index of frames without a VLAN tag. */
	STEER_NO_VLAN = 4096,
	/* Prefixes in the trie: for each of two configurations and two ends, two for each rule. */
	STEER_RULE_NETS = 2048,
	/* Numbers of tunnels: one for each rule of two configurations. */
	STEER_RULE_TUNNELS = 512,
};

enum steer_policy {
	STEER_NONE = 0,
	STEER_RPS,
	STEER_BOUND,
	STEER_SPARSE,
	/* The hash picks a bucket. Buckets can also follow the rules below, and STEER_SPARSE. */
	STEER_BALANCE,
	STEER_RFS,
	STEER_RFS_SPARSE,
};

/* The rule that chose the target. */
enum steer_rule {
	STEER_BY_LOCAL = 0,
	STEER_BY_BOUND,
	STEER_BY_HASH,
	STEER_BY_SLOT,
	STEER_BY_RFS,
	/* A rule before the policy; and one that lets the packet pass. */
	STEER_BY_MATCH,
	STEER_BY_PASS,
	STEER_RULES,
};

/* Options of the parser. A tunnel of a kind STEER_KEY_… is steered by its number instead of its ports;
 * rxsteer-packet/src/tunnel_id.rs has the kinds. */
enum steer_options {
	STEER_KEY_ESP = 1,
	STEER_KEY_GTP = 2,
	STEER_KEY_L2TP = 4,
	STEER_KEY_WIREGUARD = 8,
	STEER_KEYS = 15,
	/* Kinds whose number cannot be a key. */
	STEER_KIND_VXLAN = 16,
	STEER_KIND_GENEVE = 32,
	/* Read the number of the outermost tunnel. */
	STEER_NUMBERS = 64,
	/* Enter tunnels. */
	STEER_INNER = 128,
};

#endif
