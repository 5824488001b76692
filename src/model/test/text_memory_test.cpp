// Memory that runs out while text from outside is read: an exception, whichever call finds none.
#include <functional>
#include <new>
#include <string>

#include <gtest/gtest.h>

#include "heddle/core/error.h"

#include "heap_count.h"
#include "model/adapters/adapter_config.h"
#include "model/model_text.h"

namespace heddle::model {
namespace {

/// Calls again and again; the n-th allocation of call n fails. Ends with the first call that asks
/// for fewer.
void expect_bad_alloc_alone(int64_t at_least, const std::function<void()>& call) {
  int64_t num_failures = 0, countdown = 0;
  do {
    countdown = num_failures + 1;
    try {
      const testing::FailingAllocation failing(countdown);
      call();
      EXPECT_GT(countdown, 0) << "allocation " << num_failures << " failed unnoticed";
    } catch (const std::bad_alloc&) {
    }
    num_failures += countdown <= 0 ? 1 : 0;
  } while (countdown <= 0);
  EXPECT_GT(num_failures, at_least) << "few allocations were seen";
}

/// All fields and kinds of values, containers in containers.
const std::string kConfig =
    R"({"peft_type": "LORA", "base_model_name_or_path": "somebody/some-model-of-some-size",
        "bias": "none", "init_lora_weights": "gaussian", "r": 8, "lora_alpha": 16.5,
        "use_rslora": true, "fan_in_fan_out": false, "target_modules": ["q_proj", "down_proj"],
        "exclude_modules": ".*(up|down)_proj", "layers_to_transform": [0, 1, 2],
        "layers_pattern": ["layers", "h"], "modules_to_save": [], "task_type": "CAUSAL_LM",
        "rank_pattern": {"q_proj": 4, "^model\\.layers\\.[0-9]+.*v_proj": 2},
        "alpha_pattern": {"down_proj": 3.5}, "auto_mapping": {"a": [{"b": [[]]}, {"c": {}}]},
        "runtime_config": {"a": {"b": {"c": [1, [2, [3]]]}}})";

TEST(TextMemory, EachAllocationOfAnAdaptersConfigurationMayFail) {
  expect_bad_alloc_alone(40, [] {
    const AdapterConfig config = parse_adapter_config(kConfig + "}", "adapter_config.json");
    ASSERT_EQ(config.rank_pattern.size(), 2u);
  });
}

TEST(TextMemory, EachAllocationOfAConfigurationThatIsRefusedMayFail) {
  for (const char* wrong : {R"("use_dora": [[true]]})", R"("loftq_config": [{"a": [)",
                            R"("corda_config": {"a": [[1]], "a": 2}})"}) {
    expect_bad_alloc_alone(10, [&] {
      try {
        (void)parse_adapter_config(kConfig + ", " + wrong, "adapter_config.json");
        ADD_FAILURE() << "accepted: " << wrong;
      } catch (const Error&) {
      }
    });
  }
}

TEST(TextMemory, EachAllocationOfAConversationMayFail) {
  const chat_template::SpecialTokens special = {{"bos_token", "<s>"}};
  const auto templates = [](const char* source) {
    return chat_template::ChatTemplates::from({{"default", source}});
  };
  const auto asking = templates(
      "{{ bos_token }}{% for m in messages %}{% set role = m.role | upper %}"
      "<{{ role }}>{{ m['content'] | trim }}{{ eos_token }}\n{% endfor %}"
      "{% if add_generation_prompt and tools %}<A>{% endif %}{{ messages | length }}");
  const std::string long_text = "a text that is longer than a short string is";
  std::vector<ChatTurn> turns = {{"system", long_text}};
  for (int i = 0; i < 5; ++i)
    turns.insert(turns.end(), {{"user", " hi "}, {"assistant", long_text}});
  std::string want = "<s><SYSTEM>" + long_text + '\n';
  for (int i = 0; i < 5; ++i) want += "<USER>hi\n<ASSISTANT>" + long_text + '\n';
  want += "<A>11";
  const auto render = [&](const chat_template::ChatTemplates& from) {
    const auto json = [](const char* text) { return files::parse_json(text, "test"); };
    return render_chat(
        from,
        {.turns = turns,
         .tools = json(R"([{"type": "function", "function": {"name": "now and then"}}])"),
         .kwargs = json(R"({"some_variable_of_the_template": [{"a": 1}]})")},
        special, 64);
  };
  expect_bad_alloc_alone(100, [&] { ASSERT_EQ(render(asking), want); });
  const auto refusing = templates(
      "{% for m in messages %}{{ raise_exception('no ' + m.role) }}{{ tools }}{% endfor %}");
  expect_bad_alloc_alone(100, [&] {
    try {
      (void)render(refusing);
      ADD_FAILURE() << "rendered";
    } catch (const Error&) {
    }
  });
}

}  // namespace
}  // namespace heddle::model
