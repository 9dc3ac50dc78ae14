// SPDX-License-Identifier: MIT OR Apache-2.0
#include <rxsteer.h>

inline size_t first_length(const rxsteer_list *list) { return rxsteer_packet_at(list, 0)->captured_len; }
