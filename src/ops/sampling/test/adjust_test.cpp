#include "expect_error.h"
#include "ops/sampling/test/adjust_test_body.h"
#include "scoped_validation.h"

namespace heddle {
namespace {

using testing::message_of;

TEST(AdjustLogits, IsTheDefinition) {
  testing::Mirror host;
  for (const int64_t vocab_size : {1, 3, 17, 300}) {
    for (int repeat = 0; repeat < 5; ++repeat) {
      expect_adjusts({}, host, testing::random_int(0, 9), vocab_size);
    }
  }
}

TEST(AdjustLogits, ARowDependsOnItsOwnEntriesAlone) {
  constexpr int64_t kRows = 9, kVocab = 100;
  testing::Mirror host;
  const auto before = testing::random_normal<float>(size_t{kRows * kVocab}, 4.0f);
  std::vector<ref::RowAdjustment> rows;
  AdjustColumns columns;
  for (int64_t r = 0; r < kRows; ++r) {
    rows.push_back(random_adjustment(kVocab));
    columns.add(rows.back());
  }
  std::vector<float> all = before;
  ThreadPool threads(3);
  adjust_logits({.threads = &threads}, host_view(all.data(), {kRows, kVocab}), {},
                columns.on(host));
  for (int64_t r = 0; r < kRows; ++r) {
    std::vector<float> alone(before.begin() + r * kVocab, before.begin() + (r + 1) * kVocab);
    AdjustColumns own;
    own.add(rows[size_t(r)]);
    adjust_logits({}, host_view(alone.data(), {1, kVocab}), {}, own.on(host));
    EXPECT_TRUE(
        testing::same_bits<float>(alone, std::span(all).subspan(size_t(r * kVocab), kVocab)));
  }
}

/// A repetition below 1 makes what has been more likely; a logit of 0 stays; ids out of range and
/// entries past the end are left out.
TEST(AdjustLogits, DefinesItsBorders) {
  testing::Mirror host;
  AdjustColumns columns;
  columns.add({{0, 1, 2}, {}, std::vector<double>(3), 0.5, 9.0, 9.0});
  columns.token_ids = {-1, 1, 3};
  columns.indptr = {0, 700};
  std::vector<float> logits{5.0f, 3.0f, 0.0f}, saved(3, 8.0f);
  adjust_logits({}, host_view(logits.data(), {1, 3}), host_view(saved.data(), {3}),
                columns.on(host));
  EXPECT_EQ(logits, (std::vector<float>{5.0f, 6.0f, 0.0f}));
  EXPECT_EQ(saved, (std::vector<float>{8.0f, 3.0f, 8.0f}));
  columns.token_ids = {0, 1, 2};
  columns.bias = {0.0f, -INFINITY, 0.0f};
  adjust_logits({}, host_view(logits.data(), {1, 3}), {}, columns.on(host));
  EXPECT_EQ(logits, (std::vector<float>{10.0f, -INFINITY, 0.0f}));
}

TEST(AdjustLogits, NamesWhatIsWrong) {
  testing::Mirror host;
  AdjustColumns fine;
  fine.add({{0, 2}, {2}, std::vector<double>(4), 1.5, 0.5, 0.25});
  std::vector<float> logits(4), saved(2);
  const auto message = [&](const AdjustColumns& columns, TensorView to) {
    return message_of([&] {
      adjust_logits({}, host_view(logits.data(), {1, 4}), to, columns.on(host));
    });
  };
  AdjustColumns wrong = fine;
  EXPECT_EQ(message(fine, host_view(saved.data(), {2})), "no error");
  EXPECT_EQ(message(fine, host_view(saved.data(), {1})),
            "saved.size(0) is 1, expected num_entries = 2");
  wrong.indptr.push_back(2);
  EXPECT_EQ(message(wrong, {}), "indptr.size(0) is 3, expected num_rows + 1 = 2");

  const testing::ScopedValidation on;
  EXPECT_EQ(message(fine, {}), "no error");
  const auto with = [&](const auto& change) {
    AdjustColumns columns = fine;
    change(columns);
    return message(columns, {});
  };
  EXPECT_EQ(with([](auto& c) {
              c.token_ids = {2, 2};
            }),
            "token_ids[1] is 2, expected above token_ids[0] = 2 of the same row");
  EXPECT_EQ(with([](auto& c) { c.indptr[1] = 3; }),
            "indptr[1] is 3, expected at most num_entries = 2");
  EXPECT_EQ(with([](auto& c) { c.prompt_counts[1] = -1; }),
            "prompt_counts[1] is -1, expected at least 0");
  EXPECT_EQ(with([](auto& c) { c.output_counts[0] = -3; }),
            "output_counts[0] is -3, expected at least 0");
  EXPECT_EQ(with([](auto& c) { c.bias[1] = NAN; }), "bias[1] is NaN");
  EXPECT_EQ(with([](auto& c) { c.repetition[0] = 0; }),
            "repetition[0] is 0, expected a finite number above 0");
  EXPECT_EQ(with([](auto& c) { c.presence[0] = INFINITY; }),
            "presence[0] is inf, expected a finite number");
  EXPECT_EQ(with([](auto& c) { c.frequency[0] = INFINITY; }),
            "frequency[0] is inf, expected a finite number");
}

}  // namespace
}  // namespace heddle
