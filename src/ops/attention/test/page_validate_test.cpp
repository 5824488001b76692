// What is always checked of a page table on the CPU, and what HEDDLE_VALIDATE=1 checks of its
// pages.
#include <vector>

#include <gtest/gtest.h>

#include "heddle/ops/attention.h"

#include "testing/expect_error.h"
#include "testing/scoped_validation.h"

namespace heddle {
namespace {

using testing::expect_invalid;

/// A pool of 3 pages of 2 tokens, one head of dimension 2, and two sequences: 3 tokens on pages 2
/// and 0, 1 token on page 1.
struct Call {
  std::vector<float> k = std::vector<float>(12), v = std::vector<float>(12);
  std::vector<float> rows = std::vector<float>(8);
  std::vector<int32_t> page_indptr{0, 2, 3}, pages{2, 0, 1, 99}, last_page_len{1, 1};
  std::vector<int64_t> addresses, q_indptr{0, 3, 4};
  PagedKv cache =
      PagedKv::from_pool(host_view(k.data(), {3, 1, 2, 2}), host_view(v.data(), {3, 1, 2, 2}));

  [[nodiscard]] PageTable table() const {
    return {host_view(page_indptr.data(), {3}),
            addresses.empty() ? host_view(pages.data(), {4}) : host_view(addresses.data(), {3}),
            host_view(last_page_len.data(), {2})};
  }
  /// Every op that reads a page table.
  template <class Expect>
  void run_all(const Expect& expect) {
    const TensorView all = host_view(rows.data(), {4, 1, 2});
    const TensorView two = host_view(rows.data(), {2, 1, 2});
    const ConstTensorView indptr = host_view(q_indptr.data(), {3});
    expect([&] { batch_prefill({}, all, {}, all, indptr, cache, table()); });
    expect([&] { kv_init({}, cache, table(), all, all, indptr); });
    expect([&] { batch_decode({}, two, {}, two, cache, table()); });
    expect([&] { kv_append({}, cache, table(), two, two); });
  }
  void expect_error(const char* message) {
    run_all([&](const auto& call) { expect_invalid({message}, call); });
  }
  void expect_success() {
    run_all([](const auto& call) { EXPECT_NO_THROW(call()); });
  }
};

TEST(PageValidate, LengthsAndStartsAreAlwaysChecked) {
  Call c;
  c.expect_success();
  c.last_page_len[1] = 3;
  c.expect_error("last_page_len[1] is 3, expected 1 to page_size = 2");
  c.last_page_len[1] = 0;
  c.expect_error("last_page_len[1] is 0, expected 1 to page_size = 2");
  c.last_page_len[1] = 1;
  c.page_indptr[1] = 4;
  c.expect_error("page_indptr[2] is 3, expected at least page_indptr[1] = 4");
  c.page_indptr = {0, 2, 5};
  c.expect_error("page_indptr[2] is 5, expected at least page_indptr[1] = 2 and at most num pages");
  c.page_indptr = {-1, 2, 3};
  c.expect_error("page_indptr[0] is -1");
}

TEST(PageValidate, UsedPagesLieInThePool) {
  Call c;
  const testing::ScopedValidation on;
  c.expect_success();  // page 99 belongs to no sequence
  c.pages[1] = 3;
  c.expect_error("pages[1] is 3, expected below num_pages = 3");
  c.pages[1] = -1;
  c.expect_error("pages[1] is -1, expected at least 0");
}

TEST(PageValidate, UsedPagesHaveAddresses) {
  Call c;
  std::vector<float> page(8);  // one layer of keys and values
  const auto address = reinterpret_cast<int64_t>(page.data());
  c.addresses = {address, address, address};
  c.cache = PagedKv::from_pointers(DType::kFloat32, {}, 1, 0, 1, 2, 2);
  const testing::ScopedValidation on;
  c.expect_success();
  c.addresses[2] = 0;
  c.expect_error("pages[2] is null, but sequence 1 uses it");
}

TEST(PageValidate, RowsOfTokensAreAlwaysChecked) {
  Call c;
  const TensorView all = host_view(c.rows.data(), {4, 1, 2});
  c.q_indptr[2] = 5;
  expect_invalid(
      {"q_indptr[2] is 5, expected at least q_indptr[1] = 3 and at most num_tokens = 4"}, [&] {
        batch_prefill({}, all, {}, all, host_view(c.q_indptr.data(), {3}), c.cache, c.table());
      });
  c.q_indptr = {2, 1, 4};
  expect_invalid({"seq_indptr[1] is 1, expected at least seq_indptr[0] = 2"}, [&] {
    kv_init({}, c.cache, c.table(), all, all, host_view(c.q_indptr.data(), {3}));
  });
}

}  // namespace
}  // namespace heddle
