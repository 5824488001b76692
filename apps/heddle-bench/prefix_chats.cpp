// Chats of many users, whose every turn begins with all that was said before.
#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "prefix_bench.h"

namespace heddle::app {
namespace {

using Clock = PrefixBench::Clock;
using Json = PrefixBench::Json;
using Tokens = std::vector<int32_t>;

constexpr int kAdapters = 8;
constexpr int64_t kQuestion = 64, kAnswer = 64;  // tokens

/// One engine, and what it took.
struct Side {
  std::string name;
  Engine engine;
  Figure turn_ms;
  std::vector<std::vector<double>> each_turn_ms{};  // [samples, turns]
  std::vector<int64_t> found{}, asked{};            // tokens of all prompts of a sample
  std::vector<Tokens> chats{};                      // of each user
};

class ChatsBench {
 public:
  explicit ChatsBench(PrefixBench& bench)
      : bench_(bench),
        num_users_(bench.options().num_users),
        num_turns_(bench.options().num_turns),
        num_adapters_(
            std::min(PrefixBench::given_or(bench.options().num_adapters, kAdapters), num_users_)),
        num_question_(bench.options().prompt > 0 ? bench.options().prompt : kQuestion),
        num_answer_(PrefixBench::given_or(bench.options().num_tokens, kAnswer)) {
    for (const bool has_cache : {true, false}) {
      const int64_t longest = num_turns_ * (num_question_ + num_answer_);
      EngineOptions options = bench.engine_options(2 * num_users_ * longest);
      options.max_batch = num_users_;
      options.max_context = 2 * longest;  // which bounds the cache, too
      options.prefix_cache = has_cache;
      const std::string name = has_cache ? "chats_with_cache" : "chats_without_cache";
      sides_.push_back({name, bench.make(options), {name, "ms", {}}});
      bench.add_adapters(sides_.back().engine, num_adapters_);
    }
  }

  void run() {
    for (int round = -1; round < bench_.options().num_samples; ++round) {
      const std::vector<Tokens> questions = make_questions();
      for (size_t i = 0; i < sides_.size(); ++i) {
        chat(sides_[round % 2 == 0 ? i : 1 - i], questions, round < 0);
      }
      if (sides_[0].chats != sides_[1].chats) ++num_different_;
    }
    for (const Side& side : sides_) report(side);
    bench_.add_ratio("chats_without_over_with", sides_[1].turn_ms.samples,
                     sides_[0].turn_ms.samples,
                     {{"op", "chats"}, {"rounds_of_other_answers", num_different_}});
  }

 private:
  /// Of each user and turn.
  std::vector<Tokens> make_questions() {
    std::vector<Tokens> questions;
    for (int i = 0; i < num_users_ * num_turns_; ++i) {
      questions.push_back(bench_.tokens(sides_.front().engine, num_question_));
    }
    return questions;
  }

  void chat(Side& side, const std::vector<Tokens>& questions, bool is_warm_up) const {
    Engine& engine = side.engine;
    engine.reset_prefix_cache();
    side.chats.assign(static_cast<size_t>(num_users_), {});
    std::vector<double> turns;
    const EngineStats before = engine.stats();
    const auto first = Clock::now();
    for (int turn = 0; turn < num_turns_; ++turn) {
      const auto begin = Clock::now();
      run_turn(side, std::span(questions).subspan(static_cast<size_t>(turn * num_users_)));
      turns.push_back(PrefixBench::ms_since(begin));
    }
    const double all = PrefixBench::ms_since(first);
    if (is_warm_up) return;
    side.turn_ms.samples.push_back(all / num_turns_);
    side.each_turn_ms.push_back(std::move(turns));
    side.found.push_back(engine.stats().cached_tokens - before.cached_tokens);
    side.asked.push_back(num_users_ * num_turns_ *
                         (num_question_ + (num_turns_ - 1) * (num_question_ + num_answer_) / 2));
  }

  void run_turn(Side& side, std::span<const Tokens> questions) const {
    std::map<RequestId, size_t> user_of;
    for (size_t user = 0; user < side.chats.size(); ++user) {
      Tokens& chat = side.chats[user];
      std::ranges::copy(questions[user], std::back_inserter(chat));
      Request request = PrefixBench::request_of(chat, num_answer_);
      request.adapter = PrefixBench::adapter_name(static_cast<int>(user) % num_adapters_);
      user_of[side.engine.submit(std::move(request))] = user;
    }
    while (side.engine.num_unfinished() > 0) {
      for (const Event& event : PrefixBench::step(side.engine)) {
        if (!event.completion) continue;
        std::ranges::copy(event.completion->token_ids,
                          std::back_inserter(side.chats[user_of[event.request]]));
      }
    }
  }

  void report(const Side& side) {
    bench_.add(side.turn_ms,
               {{"op", "chats"},
                {"is", "a turn of all users together: the mean over the turns of a chat"},
                {"prefix_cache", side.engine.options().prefix_cache},
                {"users", num_users_},
                {"adapters", num_adapters_},
                {"turns", num_turns_},
                {"question", num_question_},
                {"answer", num_answer_},
                {"tokens_asked", side.asked},
                {"tokens_found", side.found},
                {"each_turn_ms", side.each_turn_ms}});
  }

  PrefixBench& bench_;
  int num_users_, num_turns_, num_adapters_;
  int64_t num_question_, num_answer_;
  int num_different_ = 0;
  std::vector<Side> sides_;
};

}  // namespace

void measure_chats(PrefixBench& bench) { ChatsBench(bench).run(); }

}  // namespace heddle::app
