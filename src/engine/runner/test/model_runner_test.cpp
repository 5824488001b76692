#include "engine/runner/model_runner.h"

#include <gtest/gtest.h>

#include "compare.h"
#include "engine/test/model_files.h"
#include "expect_error.h"
#include "heap_count.h"
#include "model/source/gguf_model.h"
#include "second_cpu.h"

namespace heddle {
namespace {

model::GgufModel file_of(const testing::RandomModel& model) {
  return {std::as_bytes(std::span(model.text())), "tiny.gguf"};
}

constexpr ModelRunner::Limits kLimits{.max_batch = 3,
                                      .num_threads = 2,
                                      .page_size = 4,
                                      .prefill_chunk = 8,
                                      .max_context = 32,
                                      .kv_memory = 1 << 20};

/// Launches and collects a step with the next num_tokens[i] tokens of each sequence; 0: it takes no
/// part.
StepTokens run(ModelRunner& runner, StepSchedule& step, std::span<Sequence> sequences,
               std::span<const int64_t> num_tokens) {
  step.clear();
  for (size_t i = 0; i < sequences.size(); ++i) {
    if (num_tokens[i] > 0) step.add(sequences[i], num_tokens[i]);
  }
  const StepHandle handle = runner.launch(step);
  runner.draw(handle);
  return runner.collect(handle);
}

/// Its slot.
int32_t add_adapter(ModelRunner& runner, const model::PeftAdapter& adapter) {
  AdapterData data = runner.adapters().prepare(adapter);
  runner.add_adapter(data);
  return *data.slot;
}

/// Greedy and drawn answers of three sequences, the third one with the adapter, on one device.
std::vector<std::vector<int32_t>> answers_on(Device device, const model::ModelFiles& file,
                                             const model::PeftAdapter& adapter,
                                             std::vector<float>& first_logits) {
  ModelRunner runner(device, file, kLimits);
  std::vector<Sequence> sequences(3);
  for (int32_t i = 0; i < 3; ++i) {
    Sequence& sequence = sequences[static_cast<size_t>(i)];
    for (int32_t t = 0; t <= 2 * i; ++t) sequence.tokens.push_back((5 * i + 7 * t) % 26);
    sequence.cache.pages = *runner.pages().reserve(8);
    sequence.request.sampling = {
        .temperature = i == 1 ? 0.9f : 0.0f, .top_k = 9, .top_p = 0.9f, .seed = 11};
  }
  sequences[2].adapters.slot = add_adapter(runner, adapter);
  StepSchedule schedule;
  for (int step = 0; step < 10; ++step) {
    std::vector<int64_t> num_tokens;
    for (const Sequence& sequence : sequences) {
      num_tokens.push_back(std::ssize(sequence.tokens) - sequence.cache.num_cached);
    }
    const StepTokens drawn = run(runner, schedule, sequences, num_tokens);
    if (step == 0) first_logits = runner.copy_logits();
    EXPECT_EQ(drawn.ids.size(), 3u);
    for (size_t i = 0; i < 3; ++i) {
      sequences[i].tokens.push_back(drawn.ids[i]);
      sequences[i].answer.completion.token_ids.push_back(drawn.ids[i]);
      EXPECT_LE(drawn.logprobs[i], 0.0f);
    }
  }
  std::vector<std::vector<int32_t>> answers;
  for (const Sequence& each : sequences) answers.push_back(each.answer.completion.token_ids);
  return answers;
}

/// The ops refuse tensors of another device: a buffer that did not come from the context's device
/// throws here.
TEST(ModelRunner, TakesAllMemoryFromTheDeviceOfItsContext) {
  testing::RandomModel model;
  const model::GgufModel file = file_of(model);
  std::string adapter_bytes;
  const model::PeftAdapter adapter = model.adapter(3, adapter_bytes);
  std::vector<float> logits, second_logits;
  const auto answers = answers_on({}, file, adapter, logits);
  EXPECT_EQ(answers_on(testing::kSecondCpu, file, adapter, second_logits), answers);
  EXPECT_EQ(logits.size(), 3u * 26u);
  EXPECT_EQ(second_logits, logits);
}

/// Two sequences with a prompt of 5 and 7 tokens.
std::vector<Sequence> two_prompts(ModelRunner& runner) {
  std::vector<Sequence> sequences(2);
  sequences[0].tokens = {1, 2, 3, 4, 5};
  sequences[1].tokens = {9, 8, 7, 6, 5, 4, 3};
  for (Sequence& sequence : sequences) sequence.cache.pages = *runner.pages().reserve(2);
  return sequences;
}

TEST(ModelRunner, AStepThatFailsLeavesAllSequencesAsTheyWere) {
  const testing::RandomModel model;
  const model::GgufModel file = file_of(model);
  ModelRunner undisturbed({}, file, kLimits), runner({}, file, kLimits);
  std::vector<Sequence> wanted = two_prompts(undisturbed), sequences = two_prompts(runner);
  const int64_t first[] = {3, 4}, rest[] = {2, 3};
  StepSchedule step;
  run(undisturbed, step, wanted, first);
  run(undisturbed, step, wanted, rest);

  run(runner, step, sequences, first);
  sequences[1].cache.pages = {};  // it was not admitted
  testing::expect_invalid({"admitted for 0"}, [&] { run(runner, step, sequences, rest); });
  EXPECT_EQ(sequences[0].cache.num_cached, 3);
  EXPECT_EQ(sequences[1].cache.num_cached, 4);
  sequences[1].cache.pages = *runner.pages().reserve(2);
  sequences[1].cache.num_cached = 0;  // its pages are others now
  const int64_t again[] = {2, 7};
  run(runner, step, sequences, again);
  EXPECT_TRUE(testing::same_bits<float>(runner.copy_logits(), undisturbed.copy_logits()));
}

TEST(ModelRunner, AStepDoesNotAllocate) {
  testing::RandomModel model;
  const model::GgufModel file = file_of(model);
  ModelRunner runner({}, file, kLimits);
  std::string adapter_bytes;
  const int32_t slot = add_adapter(runner, model.adapter(11, adapter_bytes));
  std::vector<Sequence> sequences = two_prompts(runner);
  sequences[1].adapters.slot = slot;
  sequences[1].request.sampling.temperature = 1.0f;
  const int64_t num_tokens[] = {4, 7};  // the first is within its prompt
  StepSchedule step;
  step.rows.reserve(2);
  const int64_t num_allocations = testing::num_heap_allocations();
  EXPECT_EQ(run(runner, step, sequences, num_tokens).ids.size(), 1u);
  EXPECT_EQ(testing::num_heap_allocations(), num_allocations);
}

/// Logits of a prompt with each of the first `count` slots.
std::vector<float> logits_of_slots(ModelRunner& runner, int32_t count) {
  std::vector<float> logits;
  StepSchedule step;
  for (int32_t slot = 0; slot < count; ++slot) {
    std::vector<Sequence> sequences = two_prompts(runner);
    sequences[0].adapters.slot = slot;
    const int64_t num_tokens[] = {5, 0};
    run(runner, step, sequences, num_tokens);
    const std::vector<float> of_slot = runner.copy_logits();
    logits.insert(logits.end(), of_slot.begin(), of_slot.end());
  }
  return logits;
}

TEST(ModelRunner, AnAdapterThatFindsNoMemoryLeavesTheOthersAsTheyWere) {
  testing::RandomModel model;
  const model::GgufModel file = file_of(model);
  const std::vector<int64_t> ranks = {3, 3, 3, 3, 7};  // the fourth finds room in the tables
  std::vector<std::string> bytes(ranks.size());
  std::vector<model::PeftAdapter> adapters;
  ModelRunner undisturbed({}, file, kLimits), runner({}, file, kLimits);
  for (size_t i = 0; i < ranks.size(); ++i) {
    adapters.push_back(model.adapter(ranks[i], bytes[i]));
    EXPECT_EQ(add_adapter(undisturbed, adapters.back()), static_cast<int32_t>(i));
  }
  for (size_t i = 0; i < ranks.size(); ++i) {
    const auto slot = static_cast<int32_t>(i);
    int32_t added = -1;
    int64_t num_failures = 0;
    while (added < 0) {
      int64_t countdown = num_failures + 1;
      try {
        const testing::FailingAllocation failing(countdown);
        added = add_adapter(runner, adapters[i]);
      } catch (const std::bad_alloc&) {
        ++num_failures;
      }
      const std::string what =
          "adapter " + std::to_string(i) + ", allocation " + std::to_string(num_failures);
      ASSERT_TRUE(testing::same_bits<float>(logits_of_slots(runner, slot),
                                            logits_of_slots(undisturbed, slot)))
          << what;
    }
    EXPECT_EQ(added, slot);
    EXPECT_GT(num_failures, 3) << "few allocations were seen";
  }
  EXPECT_TRUE(
      testing::same_bits<float>(logits_of_slots(runner, 5), logits_of_slots(undisturbed, 5)));
}

}  // namespace
}  // namespace heddle
