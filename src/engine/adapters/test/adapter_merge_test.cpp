// Merges of adapters through the engine: what they answer, and how they come, stay and go.
#include <filesystem>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "engine/adapters/test/adapter_folder_case.h"
#include "expect_error.h"
#include "model/adapters/merge/merged_adapter.h"
#include "model/adapters/open_adapter.h"
#include "model/source/gguf_model.h"
#include "safetensors_builder.h"

namespace heddle {
namespace {

namespace fs = std::filesystem;
using Method = AdapterMerge::Method;
using Sign = AdapterMerge::MajoritySign;

constexpr AdapterMerge kTies{.method = Method::kTies, .density = 0.5};

class AdapterMergeTest : public testing::AdapterFolderTest {
 protected:
  AdapterMergeTest() {
    write("second");
    write("third");
  }

  static Request merged(AdapterList list, const AdapterMerge& merge = kTies,
                        std::vector<int32_t> prompt = {5, 3, 200, 77}) {
    Request request = testing::endless_request(std::move(prompt), 3);
    request.adapters = std::move(list);
    request.merge = merge;
    return request;
  }
  static Completion answer(Engine& engine, const Request& request) {
    return testing::run_all(engine, {request}).front();
  }
  /// Writes what the merge is as an adapter of its own.
  void write_merged(const std::string& name, const AdapterList& list,
                    const model::AdapterMergeRule& rule) {
    const model::GgufModel file(model_.path());
    std::vector<model::MergePart> parts;
    for (const auto& [part, weight] : list) {
      auto opened = model::open_adapter(place(part), file.config());
      opened->load();
      parts.push_back({part, std::move(opened), weight});
    }
    model::MergedAdapter merge(name, std::move(parts), rule);
    merge.load();
    testing::SafetensorsBuilder tensors;
    for (const model::AdapterPair& pair : merge.pairs()) {
      const std::string prefix = "base_model.model.model.layers." + std::to_string(pair.layer) +
                                 "." + std::string(pair.module->name);
      for (const auto& [half, values] :
           {std::pair(".lora_A.weight", pair.stored_a()), {".lora_B.weight", pair.stored_b()}}) {
        tensors.tensor(prefix + half, "F32", {values.rows, values.columns},
                       {reinterpret_cast<const char*>(values.data), values.bytes().size()});
      }
    }
    fs::create_directories(place(name));
    folder_.write(name + "/adapter_model.safetensors", tensors.build());
    folder_.write(
        name + "/adapter_config.json",
        R"({"peft_type": "LORA", "lora_alpha": 2, "r": 2, "target_modules": "all-linear"})");
  }
  [[nodiscard]] std::string place(const std::string& name) const {
    return (folder_.path() / name).string();
  }
  /// Adapters that became resident for the request, which has an answer.
  static int64_t loads_for(Engine& engine, const Request& request) {
    const int64_t before = engine.stats().adapter_loads;
    EXPECT_EQ(answer(engine, request).error, "");
    return engine.stats().adapter_loads - before;
  }
};

/// In a batch with rows of its parts, of a list and of the base model.
TEST_F(AdapterMergeTest, AnswersAsTheAdapterThatItIs) {
  const AdapterList list = {{"first", 0.8f}, {"second", -1.5f}, {"third"}};
  using Rule = model::AdapterMergeRule;
  const std::pair<AdapterMerge, Rule> merges[] = {
      {{.method = Method::kTies, .density = 0.4}, {.method = Rule::Method::kTies, .density = 0.4}},
      {{.method = Method::kTies, .density = 0.4, .majority_sign = Sign::kFrequency},
       {.method = Rule::Method::kTies,
        .density = 0.4,
        .majority_sign = Rule::MajoritySign::kFrequency}},
      {{.method = Method::kDareLinear, .density = 0.7, .seed = 9},
       {.method = Rule::Method::kDareLinear, .density = 0.7, .seed = 9}},
      {{.method = Method::kDareTies, .density = 0.7, .majority_sign = Sign::kFrequency, .seed = -1},
       {.method = Rule::Method::kDareTies,
        .density = 0.7,
        .majority_sign = Rule::MajoritySign::kFrequency,
        .seed = -1}},
      {{.method = Method::kMagnitudePrune, .density = 0.6},
       {.method = Rule::Method::kMagnitudePrune, .density = 0.6}}};
  Request sum = merged(list, {});
  std::vector<Request> requests = {request("first"), sum, request("")};
  for (const auto& [merge, rule] : merges) {
    requests.push_back(merged(list, merge));
    requests.push_back(request("second"));
  }
  Engine engine = this->engine(0);
  const std::vector<Completion> together = testing::run_all(engine, requests);
  Engine fresh = this->engine(0);
  testing::expect_same(together[1], answer(fresh, sum), "the sum of the deltas");
  size_t at = 3;
  for (const auto& [merge, rule] : merges) {
    write_merged("merged", list, rule);
    const Completion want = alone("merged");
    testing::expect_same(together[at], want, name(merge.method));
    EXPECT_EQ(together[at].adapter_digest, want.adapter_digest);
    EXPECT_NE(together[at].logprobs, together[1].logprobs);
    at += 2;
  }
}

TEST_F(AdapterMergeTest, IsMadeOnceForEachContentAndRule) {
  fs::copy(place("first"), place("copy"));
  Engine engine = this->engine(0, 8);
  const AdapterList list = {{"first", 0.5f}, {"second"}};
  // At once.
  const std::vector<Completion> both = testing::run_all(engine, {merged(list), merged(list)});
  testing::expect_same(both[0], both[1], "both");
  EXPECT_EQ(engine.stats().adapter_reads, 1);
  EXPECT_EQ(loads_for(engine, merged(list)), 0);
  EXPECT_EQ(loads_for(engine, merged({{"copy", 0.5f}, {"second"}})), 0);
  AdapterMerge other = kTies;
  other.density = 0.25;
  EXPECT_EQ(loads_for(engine, merged(list, other)), 1);
  EXPECT_EQ(loads_for(engine, merged({{"first"}, {"second"}})), 1);
  EXPECT_EQ(loads_for(engine, merged({{"second"}, {"first", 0.5f}})), 1);
  other = {.method = Method::kDareTies, .density = 0.5};
  EXPECT_EQ(loads_for(engine, merged(list, other)), 1);
  other.seed = 1;
  EXPECT_EQ(loads_for(engine, merged(list, other)), 1);
  EXPECT_EQ(loads_for(engine, merged(list, other)), 0);
}

TEST_F(AdapterMergeTest, IsThatOfTheContentsThatItsNamesHaveNow) {
  Engine engine = this->engine(0);
  (void)engine.add_adapter("added", place("third"));
  for (const std::string name : {"first", "added"}) {
    const AdapterList list = {{name}, {"second"}};
    const Completion before = answer(engine, merged(list));
    EXPECT_EQ(before.error, "");
    write(name == "added" ? "third" : name);
    if (name == "added") (void)engine.replace_adapter("added", place("third"));
    EXPECT_EQ(loads_for(engine, merged(list)), 1) << name;
    const Completion after = answer(engine, merged(list));
    EXPECT_NE(after.logprobs, before.logprobs) << name;
    Engine fresh = this->engine(0);
    if (name == "added") (void)fresh.add_adapter("added", place("third"));
    testing::expect_same(after, answer(fresh, merged(list)), name);
  }
  EXPECT_TRUE(engine.remove_adapter("added"));
  const Completion gone = answer(engine, merged({{"added"}, {"second"}}));
  EXPECT_EQ(gone.error_code, RequestError::kUnknownAdapter) << gone.error;
}

/// A merge reads the files again, which must not have changed under an adapter that was added.
TEST_F(AdapterMergeTest, TellsThatFilesHaveChanged) {
  Engine engine = this->engine(0);
  (void)engine.add_adapter("added", place("third"));
  write("third");
  const Completion changed = answer(engine, merged({{"added"}, {"second"}}));
  EXPECT_EQ(changed.error_code, RequestError::kInvalidArgument);
  EXPECT_NE(
      changed.error.find(
          "third: has changed since the adapter was loaded, so the merge of added and second"),
      std::string::npos)
      << changed.error;
  EXPECT_EQ(answer(engine, request("second")).error, "") << "others go on";
}

TEST_F(AdapterMergeTest, MakesRoomAsAdaptersOfTheFolderDo) {
  std::vector<AdapterMerge> merges;
  for (int64_t seed = 0; seed < 6; ++seed) {
    merges.push_back({.method = Method::kDareLinear, .density = 0.5, .seed = seed});
  }
  const AdapterList list = {{"first"}, {"second"}};
  std::vector<Completion> want;
  Engine roomy = this->engine(0);
  for (const AdapterMerge& merge : merges) want.push_back(answer(roomy, merged(list, merge)));
  Engine engine = this->engine(2, 4, 2);
  for (int round = 0; round < 2; ++round) {
    std::vector<Request> requests;
    for (const AdapterMerge& merge : merges) requests.push_back(merged(list, merge));
    const std::vector<Completion> answers = testing::run_all(engine, requests);
    for (size_t i = 0; i < merges.size(); ++i) testing::expect_same(answers[i], want[i], "merge");
    EXPECT_LE(engine.load().adapter_bytes, engine.options().adapter_memory);
  }
  EXPECT_GE(engine.stats().adapter_evictions, 8);
  // One that was added takes the room of a merge.
  (void)engine.add_adapter("x", place("third"));
  (void)engine.add_adapter("y", place("third"));
  EXPECT_EQ(engine.load().num_adapters, 2);
  const Completion none = answer(engine, merged(list));
  EXPECT_EQ(none.error_code, RequestError::kOutOfMemory) << none.error;
}

/// Without a folder of adapters, too.
TEST_F(AdapterMergeTest, IsOfAdaptersThatWereAdded) {
  Engine engine = model_.engine({.max_batch = 2});
  for (const char* name : {"first", "second"}) (void)engine.add_adapter(name, place(name));
  Engine folder = this->engine(0);
  const Request request = merged({{"first"}, {"second"}});
  testing::expect_same(answer(engine, request), answer(folder, request), "merge");
  EXPECT_EQ(engine.load().num_adapters, 3);
  EXPECT_EQ(loads_for(engine, request), 0);
  EXPECT_EQ(engine.adapter_names(), (std::vector<std::string>{"first", "second"}));
}

TEST_F(AdapterMergeTest, FindsThePagesOfItsOwnContentAlone) {
  Engine engine =
      model_.engine({.max_batch = 2, .page_size = 4, .adapter_dir = folder_.path().string()});
  const std::vector<int32_t> prompt = testing::random_tokens(17);
  const AdapterList list = {{"first"}, {"second"}};
  AdapterMerge dare{.method = Method::kDareLinear, .density = 0.5};
  const Completion first = answer(engine, merged(list, dare, prompt));
  EXPECT_EQ(first.cached_tokens, 0);
  const Completion again = answer(engine, merged(list, dare, prompt));
  EXPECT_GE(again.cached_tokens, 12);
  testing::expect_same(again, first, "with its pages");
  dare.seed = 1;
  EXPECT_EQ(answer(engine, merged(list, dare, prompt)).cached_tokens, 0);
  EXPECT_EQ(answer(engine, merged(list, {}, prompt)).cached_tokens, 0);
}

TEST_F(AdapterMergeTest, IsOfTheListsAmongVariants) {
  Engine engine = this->engine(0);
  const AdapterList list = {{"first"}, {"second"}}, other = {{"second"}, {"third"}};
  Request request = testing::endless_request({5, 3, 200, 77}, 3);
  request.merge = kTies;
  const auto run = [&](const std::vector<RequestVariant>& each) {
    const RequestId first = engine.submit_each(request, each).front();
    std::vector<testing::Outcome> outcomes(each.size());
    while (engine.num_unfinished() > 0) testing::take(engine.step(), first, outcomes);
    return outcomes;
  };
  const auto outcomes = run({{list}, {{{"first"}}}, {}, {other}});
  testing::expect_same(outcomes[0].completion, answer(engine, merged(list)), "a list");
  testing::expect_same(outcomes[1].completion, answer(engine, this->request("first")), "one");
  testing::expect_same(outcomes[2].completion, answer(engine, this->request("")), "the base model");
  testing::expect_same(outcomes[3].completion, answer(engine, merged(other)), "another list");
  for (const testing::Outcome& outcome : run({{{{"first"}}}, {}})) {
    EXPECT_NE(outcome.completion.error.find("takes two adapters or more"), std::string::npos);
  }
}

TEST_F(AdapterMergeTest, RefusesWhatCannotBe) {
  write("large", 5);
  write("called");
  folder_.write("called/adapter_config.json",
                R"({"peft_type": "LORA", "lora_alpha": 3.0, "r": 2, "alora_invocation_tokens": [7],
                    "target_modules": ["q_proj", "down_proj"]})");
  Engine engine = this->engine(0);
  const AdapterList list = {{"first"}, {"second"}};
  const auto with = [](auto change) {
    AdapterMerge merge = kTies;
    change(merge);
    return merge;
  };
  const auto expect_refused = [&](const Request& request, const std::string& text) {
    testing::expect_invalid({text.c_str()}, [&] { engine.check(request); });
  };
  expect_refused(merged({{"first"}}), "the merge is ties, which takes two adapters or more");
  Request single = request("first");
  single.merge = kTies;
  expect_refused(single, "the merge is ties, which takes two adapters or more");
  for (const double density : {0.0, -0.5, 1.5, std::numeric_limits<double>::quiet_NaN()}) {
    expect_refused(merged(list, with([=](auto& merge) { merge.density = density; })),
                   ", ties takes one above 0, up to 1");
  }
  expect_refused(merged(list, with([](auto& merge) { merge.seed = 4; })),
                 "the seed of the merge is 4, but ties draws nothing");
  expect_refused(
      merged(list,
             {.method = Method::kDareLinear, .density = 0.5, .majority_sign = Sign::kFrequency}),
      "the majority sign of the merge is frequency, but dare_linear elects no sign");
  expect_refused(merged(list, {.density = 0.5}), "the merge is linear, which has no density");
  expect_refused(merged({{"first"}, {"large"}}), "has rank 5, that of 'first' has 2");
  expect_refused(merged({{"first"}, {"called"}}),
                 "adapter 'called' has alora_invocation_tokens, which a merge cannot have");
  expect_refused(merged({{"first"}, {"first"}}), "adapters[1].name is \"first\"");
}

TEST(AdapterMerge, MethodsHaveNames) {
  for (const Method method : {Method::kLinear, Method::kTies, Method::kDareLinear,
                              Method::kDareTies, Method::kMagnitudePrune}) {
    EXPECT_EQ(merge_method(name(method)), method);
  }
  for (const Sign sign : {Sign::kTotal, Sign::kFrequency}) {
    EXPECT_EQ(majority_sign_method(name(sign)), sign);
  }
  testing::expect_invalid({"the method of a merge is 'slerp', expected one of linear, ties, "},
                          [] { (void)merge_method("slerp"); });
  testing::expect_invalid({"majority_sign_method is 'all', expected one of total, frequency"},
                          [] { (void)majority_sign_method("all"); });
  testing::expect_unsupported({"the merge 'ties_svd' is not supported"},
                              [] { (void)merge_method("ties_svd"); });
}

}  // namespace
}  // namespace heddle
