#pragma once

#include <optional>
#include <string>

#include <gtest/gtest.h>

#include "device_mirror.h"
#include "ops/lora/test/lora_cuda_cases.h"
#include "ops/lora/test/lora_test_body.h"

namespace heddle::testing {

/// Tests of calls on a GPU in every way that they can run. W: dtype of the weights and of x.
template <class W>
class LoraCuda : public CudaTest {
 protected:
  using Guards = DeviceMirror::Guards;
  /// With an exchange a call is one launch where it is large for the chip.
  enum class Form { kHalves, kFewBlocks, kGeneralBlocks };

  /// The runs that a call can make: one launch or two, with a plan or without, between guards or
  /// flush with its allocations.
  struct Runs {
    explicit Runs(Device device) : with_exchange(device, 0, true), without(device, 0, false) {}
    [[nodiscard]] LoraRun run(Form form, bool plan, Guards guards = Guards::kBoth) {
      return {form == Form::kHalves      ? without.ctx()
              : form == Form::kFewBlocks ? with_exchange.ctx_of_chip(1)
                                         : with_exchange.ctx(),
              guards == Guards::kBoth ? between_guards : flush, LoraSums::kSplit, plan};
    }
    [[nodiscard]] LoraRun any() {
      return run(pick({Form::kHalves, Form::kFewBlocks, Form::kGeneralBlocks}),
                 random_int(0, 1) == 0, pick({Guards::kBoth, Guards::kFlush}));
    }
    LoraStream with_exchange, without;
    DeviceMirror between_guards, flush{Guards::kFlush};
  };

  void SetUp() override {
    CudaTest::SetUp();
    if (!IsSkipped() && !HasFatalFailure()) runs_.emplace(cuda_context().device);
  }
  void TearDown() override {
    runs_.reset();
    CudaTest::TearDown();
  }
  [[nodiscard]] Runs& runs() { return *runs_; }
  /// Every form a call can take.
  template <class Body>
  void for_each_form(const Body& body) {
    for (const Form form : {Form::kHalves, Form::kFewBlocks, Form::kGeneralBlocks}) {
      for (const bool plan : {false, true}) {
        SCOPED_TRACE(std::string(form == Form::kHalves      ? "two launches"
                                 : form == Form::kFewBlocks ? "few blocks"
                                                            : "any blocks") +
                     (plan ? ", with a plan" : ""));
        body(runs().run(form, plan));
      }
    }
  }

 private:
  std::optional<Runs> runs_;
};
using HalfTypes = ::testing::Types<half, bfloat16>;

}  // namespace heddle::testing
