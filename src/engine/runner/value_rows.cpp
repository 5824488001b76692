#include "engine/runner/value_rows.h"

#include <algorithm>
#include <utility>

#include "heddle/ops/elementwise.h"
#include "heddle/ops/embedding.h"
#include "heddle/ops/sampling.h"

#include "core/math.h"

namespace heddle {
namespace {

/// Of numbers of a place, so that each begins where copies may.
constexpr int64_t kAlignment = 4;

/// Calls run(row, index) for the rows of the step that want values and still run.
template <class Run>
void for_value_rows(const StepSchedule& step, const Run& run) {
  for (size_t i = 0; i < step.rows.size(); ++i) {
    const RowStep& row = step.rows[i];
    if (row.is_alive() && row.sequence->values != nullptr) run(row, i);
  }
}

int64_t num_collected(const RowValues& row, int64_t hidden_size) {
  return row.pools() ? hidden_size : std::ssize(row.token_ids()) + 1;
}

}  // namespace

ValueRows::ValueRows(Device device, int64_t max_rows, int64_t hidden_size)
    : device_(device),
      max_rows_(max_rows),
      hidden_size_(hidden_size),
      width_(
          round_up(std::max(hidden_size, static_cast<int64_t>(kMaxScoredTokens) + 1), kAlignment)),
      places_(max_rows),
      mails_{{{{}, DeviceEvent(device)}, {{}, DeviceEvent(device)}}} {
  token_ids_.reserve(static_cast<size_t>(max_rows) * kMaxScoredTokens);
}

size_t ValueRows::staged_bytes(int64_t max_rows) {
  return StagedArrays::bytes_for<int32_t>(max_rows * static_cast<int64_t>(kMaxScoredTokens));
}

void ValueRows::give_place(RowValues& row) {
  if (!row.place.is_empty()) return;
  if (!collected_.view()) {
    DeviceTensor collected(device_, DType::kFloat32, {max_rows_, width_});
    std::array<StagingBytes, 2> memory;
    for (StagingBytes& each : memory) each = StagingBytes(device_, collected.num_bytes());
    for (size_t i = 0; i < memory.size(); ++i) mails_[i].memory = std::move(memory[i]);
    collected_ = std::move(collected);
  }
  row.collected.resize(static_cast<size_t>(num_collected(row, hidden_size_)));
  row.place = places_.take();
}

TensorView ValueRows::numbers(const RowValues& row, int64_t begin, int64_t count) const {
  std::byte* const first =
      collected_.view().raw() + (row.place.index() * width_ + begin) * int64_t{sizeof(float)};
  return {first, DType::kFloat32, device_, {count}};
}

void ValueRows::stage(StagedArrays& arrays, const StepSchedule& step) {
  token_ids_.clear();
  for_value_rows(step, [&](const RowStep& row, size_t) {
    const RowValues& values = *row.sequence->values;
    if (!row.gives_values || values.pools()) return;
    token_ids_.insert(token_ids_.end(), values.token_ids().begin(), values.token_ids().end());
  });
  if (!token_ids_.empty()) staged_ids_ = arrays.add(token_ids_);
}

void ValueRows::pool(const ExecContext& ctx, const StepSchedule& step, const TensorView& hidden) {
  for_value_rows(step, [&](const RowStep& row, size_t) {
    const RowValues& values = *row.sequence->values;
    if (!values.pools()) return;
    const auto add = [&](int64_t first, int64_t count, SumStart start) {
      sum_rows(ctx, numbers(values, 0, hidden_size_),
               hidden.narrow(0, row.tokens_begin + first, count), start);
    };
    switch (values.pooling()) {
      case model::Pooling::kLast:
        if (row.gives_values) add(row.count - 1, 1, SumStart::kZero);
        break;
      case model::Pooling::kFirst:
        if (row.first == 0) add(0, 1, SumStart::kZero);
        break;
      case model::Pooling::kMean:
        add(0, row.count, row.first == 0 ? SumStart::kZero : SumStart::kSum);
        break;
    }
  });
}

void ValueRows::score(const ExecContext& ctx, const StepSchedule& step, const StepLogits& logits) {
  int64_t begin = 0;
  for_value_rows(step, [&](const RowStep& row, size_t) {
    const RowValues& values = *row.sequence->values;
    if (!row.gives_values || values.pools()) return;
    const int64_t count = std::ssize(values.token_ids());
    const ConstTensorView ids = staged_ids_.narrow(0, begin, count);
    begin += count;
    const TensorView own = logits.of(row.logits_begin, 1);
    const TensorView column(own.raw(), DType::kFloat32, device_, {own.size(1), 1});
    const TensorView scores(numbers(values, 0, count).raw(), DType::kFloat32, device_, {count, 1});
    embedding(ctx, scores, ids, column);  // a plain choice of elements
    token_logprobs(ctx, numbers(values, count, 1), {}, {}, own, ids.narrow(0, 0, 1));
  });
}

void ValueRows::send(const ExecContext& ctx, const StepSchedule& step) {
  Mail& mail = mails_[next_sent_++ % mails_.size()];
  mail.is_empty = true;
  for_value_rows(step, [&](const RowStep& row, size_t i) {
    if (!row.gives_values) return;
    const RowValues& values = *row.sequence->values;
    const int64_t count = round_up(num_collected(values, hidden_size_), kAlignment);
    const TensorView from = numbers(values, 0, count);
    const int64_t to = static_cast<int64_t>(i) * width_ * int64_t{sizeof(float)};
    begin_word_copy_to_host(
        ctx, {mail.memory.get() + to, static_cast<size_t>(count) * sizeof(float)}, from.raw());
    mail.is_empty = false;
  });
  if (!mail.is_empty) mail.sent.record(ctx);
}

void ValueRows::receive(const StepSchedule& step) {
  const Mail& mail = mails_[next_received_++ % mails_.size()];
  if (mail.is_empty) return;
  mail.sent.wait();
  for_value_rows(step, [&](const RowStep& row, size_t i) {
    if (!row.gives_values) return;
    std::vector<float>& collected = row.sequence->values->collected;
    const auto* const from =
        reinterpret_cast<const float*>(mail.memory.get()) + static_cast<int64_t>(i) * width_;
    std::copy_n(from, collected.size(), collected.begin());
  });
}

}  // namespace heddle
