#pragma once

#include <map>
#include <string>

#include "ops/metadata/test/conversions_ref.h"

// The definition of prepare_batch, output by output, with plain loops.

namespace heddle::ref {

/// A call: inputs by value, extents of the outputs. Vectors that are absent are nullopt.
struct BatchCall {
  Vector cache_lengths;
  std::optional<Vector> accepted_lengths, input_lengths;
  std::optional<int64_t> num_active;
  std::optional<std::vector<Vector>> seq_pages;  // of each request
  std::optional<Vector> adapter_slots, next_input_ids, next_indptr, prompt_lengths;
  int64_t page_size = 0, tokens_per_seq = 1, accepted_extra = 0, pad_page = -1, pad_token = 0;
  // Extents of the outputs; nullopt where none of them is given.
  std::optional<int64_t> num_tokens, max_pages, table_width, num_segments, num_slots;
  std::optional<Matrix> all_input_ids;
};

using BatchResult = std::map<std::string, Vector>;

/// What becomes of each request.
struct BatchRows {
  Vector start, tokens, pages, kv, slot;  // [num_seqs], all 0 (slot -1) of padding
  int64_t overflow = 0;
};

inline BatchRows batch_rows(const BatchCall& c) {
  const auto n = c.cache_lengths.size();
  BatchRows rows{Vector(n), Vector(n), Vector(n), Vector(n), Vector(n, -1)};
  int64_t tokens_left = c.num_tokens.value_or(1 << 30), pages_left = c.max_pages.value_or(1 << 30);
  for (size_t i = 0; i < n && int64_t(i) < c.num_active.value_or(1 << 30); ++i) {
    rows.start[i] = length(c.cache_lengths[i]);
    if (c.accepted_lengths) rows.start[i] += length((*c.accepted_lengths)[i] + c.accepted_extra);
    const int64_t asked = c.input_lengths ? length((*c.input_lengths)[i]) : c.tokens_per_seq;
    rows.tokens[i] = std::min(asked, tokens_left);
    if (asked > tokens_left) rows.overflow |= 1;
    tokens_left -= rows.tokens[i];
    rows.kv[i] = rows.start[i] + rows.tokens[i];
    if (c.page_size > 0) {
      int64_t pages = 0;
      while (pages * c.page_size < rows.kv[i]) ++pages;
      if (c.seq_pages && pages > int64_t((*c.seq_pages)[i].size())) {
        pages = int64_t((*c.seq_pages)[i].size());
        rows.overflow |= 4;
      }
      const int64_t room = std::min(pages_left, c.table_width.value_or(1 << 30));
      if (pages > room) rows.overflow |= 2;
      rows.pages[i] = std::min(pages, room);
      pages_left -= rows.pages[i];
      rows.kv[i] = std::min(rows.kv[i], rows.pages[i] * c.page_size);
    }
    if (c.adapter_slots) {
      const int64_t slot = (*c.adapter_slots)[i];
      if (slot >= 0 && slot < c.num_slots.value_or(1 << 30)) rows.slot[i] = slot;
    }
  }
  return rows;
}

inline void append_tokens(const BatchCall& c, const BatchRows& rows, Matrix& all_ids,
                          BatchResult& out) {
  for (size_t i = 0; i < rows.start.size(); ++i) {
    for (int64_t j = 0; j < rows.tokens[i]; ++j) {
      const int64_t p = rows.start[i] + j;
      out["positions"].push_back(p);
      out["token_to_seq"].push_back(int64_t(i));
      out["slot_ids"].push_back(rows.slot[i]);
      if (c.seq_pages) {
        const Vector& pages = (*c.seq_pages)[i];
        const bool known = has(pages, p / c.page_size) && pages[size_t(p / c.page_size)] >= 0;
        out["kv_slots"].push_back(
            known ? pages[size_t(p / c.page_size)] * c.page_size + p % c.page_size : -1);
      }
      int64_t id = p < all_ids.width ? all_ids.at(int64_t(i), p) : c.pad_token;
      if (c.next_input_ids && p >= (c.prompt_lengths ? (*c.prompt_lengths)[i] : 0)) {
        const int64_t from = (*c.next_indptr)[i] + j;
        if (from < (*c.next_indptr)[i + 1] && has(*c.next_input_ids, from)) {
          id = (*c.next_input_ids)[size_t(from)];
          if (p < all_ids.width) all_ids.at(int64_t(i), p) = id;
        }
      }
      out["input_ids"].push_back(id);
    }
  }
}

inline void append_segments(const BatchCall& c, BatchResult& out) {
  const Vector slot_ids = out["slot_ids"];
  for (size_t t = 0; t < slot_ids.size(); ++t) {
    if (slot_ids[t] < 0) continue;
    if (t > 0 && slot_ids[t - 1] == slot_ids[t]) {
      ++out["seg_ends"].back();
    } else {
      out["seg_starts"].push_back(int64_t(t));
      out["seg_ends"].push_back(int64_t(t) + 1);
      out["seg_slots"].push_back(slot_ids[t]);
    }
  }
  out["adapter_indptr"].push_back(0);
  for (int64_t s = 0; s < c.num_slots.value_or(0); ++s) {
    for (size_t t = 0; t < slot_ids.size(); ++t) {
      if (slot_ids[t] == s) out["adapter_rows"].push_back(int64_t(t));
    }
    out["adapter_indptr"].push_back(int64_t(out["adapter_rows"].size()));
  }
}

inline BatchResult prepare_batch(const BatchCall& c) {
  const BatchRows rows = batch_rows(c);
  BatchResult out;
  Matrix all_ids = c.all_input_ids.value_or(Matrix{});
  out["q_indptr"] = out["page_indptr"] = {0};
  out["last_page_len"] = out["page_table"] = {};
  for (size_t i = 0; i < rows.start.size(); ++i) {
    out["q_indptr"].push_back(out["q_indptr"].back() + rows.tokens[i]);
    out["page_indptr"].push_back(out["page_indptr"].back() + rows.pages[i]);
    out["last_page_len"].push_back(
        rows.pages[i] > 0 ? rows.kv[i] - (rows.pages[i] - 1) * c.page_size : 0);
    for (int64_t j = 0; c.seq_pages && j < rows.pages[i]; ++j) {
      out["pages"].push_back((*c.seq_pages)[i][size_t(j)]);
      out["page_table"].push_back((*c.seq_pages)[i][size_t(j)]);
    }
    out["page_table"].resize((i + 1) * size_t(c.table_width.value_or(0)), c.pad_page);
  }
  out["start_lengths"] = rows.start;
  out["kv_lengths"] = rows.kv;
  append_tokens(c, rows, all_ids, out);
  append_segments(c, out);
  const auto num_segments = int64_t(out["seg_slots"].size());
  const bool too_many = num_segments > c.num_segments.value_or(num_segments);
  out["overflow"] = {rows.overflow | (too_many ? 8 : 0)};
  out["all_input_ids"] = all_ids.values;

  const auto pad = [&](const char* name, std::optional<int64_t> size, int64_t value) {
    out[name].resize(size_t(size.value_or(0)), value);
  };
  for (const char* name : {"kv_slots", "token_to_seq", "slot_ids", "adapter_rows"}) {
    pad(name, c.num_tokens, -1);
  }
  pad("positions", c.num_tokens, 0);
  pad("input_ids", c.num_tokens, c.pad_token);
  pad("pages", c.max_pages, c.pad_page);
  pad("seg_starts", c.num_segments, 0);
  pad("seg_ends", c.num_segments, 0);
  pad("seg_slots", c.num_segments, -1);
  return out;
}

}  // namespace heddle::ref
