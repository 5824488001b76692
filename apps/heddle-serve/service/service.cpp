#include "service/service.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <utility>

#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <spdlog/spdlog.h>

#include "heddle/core/error.h"

#include "api/api_error.h"
#include "memory.h"
#include "open_model.h"
#include "service/shares.h"

namespace heddle::serve {
namespace {

ServedNames::Base base_names(const app::ServeOptions& options, const ModelInfo& model) {
  ServedNames::Base base{.listed = options.served_names};
  const std::string usual = usual_name(model.path);
  if (base.listed.empty()) base.listed.push_back(usual);
  const std::string file = std::filesystem::path(model.path).filename().string();
  base.others = {usual, file, model.name, model.path, app::kBaseName};
  std::erase_if(base.others, [](const std::string& name) { return name.empty(); });
  return base;
}

std::string joined(const std::map<std::string, int64_t>& rows) {
  std::string names;
  for (const auto& [name, count] : rows) {
    if (name != app::kBaseName && count > 0) names += (names.empty() ? "" : ",") + name;
  }
  return names;
}

void change(std::map<std::string, int64_t>& rows, const std::string& name, int64_t by) {
  const auto place = rows.try_emplace(name, 0).first;
  place->second += by;
  if (place->second == 0) rows.erase(place);
}

}  // namespace

Service::Service(boost::asio::io_context& network, const app::ServeOptions& options,
                 std::shared_ptr<Buffers> buffers, std::unique_ptr<FetchedAdapters> fetched,
                 Engine engine, std::function<void()> on_end)
    : network_(network),
      options_(options),
      buffers_(std::move(buffers)),
      fetched_(std::move(fetched)) {
  options_.generation = engine.model().generation;
  last_.load = engine.load();
  ServedNames::Base base = base_names(options, engine.model());
  base.others.insert(base.others.end(), base.listed.begin(), base.listed.end());
  app::check_adapter_names(engine.model(), options.model, base.others);
  auto tell_end = [this, on_end = std::move(on_end)](const std::string& ended_by) {
    retry_for_memory([&] {
      boost::asio::post(network_, [this, on_end, ended_by] {
        ended_by_ = ended_by;
        on_end();
      });
    });
  };
  engine_ = std::make_unique<EngineThread>(std::move(engine), std::move(tell_end));
  names_ = std::make_unique<ServedNames>(base_names(options, engine_->model()),
                                         options.model.engine.adapter_dir, engine_->model().path);
  const std::string& fetched_folder = options.model.engine.fetched_adapter_dir;
  if (!fetched_folder.empty()) names_->hide_folder(fetched_folder);
  for (const app::NamedAdapter& adapter : options.model.adapters) {
    names_->add(adapter.name, {.path = adapter.folder, .is_added = true});
  }
  metrics_ = std::make_unique<Metrics>(engine_->options(), last_.load.num_pages, names_->base());
}

Service::~Service() {
  loads_.join();
  answers_.join();
  engine_->stop();
}

void Service::check_room(const Generation& generation) const {
  const auto count = std::ssize(generation.prompts) * generation.best_of;
  WaitingLine line{.num_places = engine_->options().max_batch,
                   .length = options_.max_waiting,
                   .num_rows = num_rows()};
  if (!line.has_room(count)) {
    throw overloaded("too many requests are waiting (--max-waiting); try again later");
  }
  std::map<std::string, int64_t> counts;  // of each tenant: of each_adapter there may be several
  for (const Request& request : generation.prompts) {
    counts[tenant_of(options_, request)] += generation.best_of;
  }
  for (const auto& [tenant, num_own] : counts) {
    if (!tenant.empty() && !line.has_room_for_tenant(num_own, tenants_.num_waiting(tenant))) {
      throw overloaded("too many requests of this " + options_.fairness +
                       " are waiting: it may take half of --max-waiting, less while others wait; "
                       "try again later");
    }
    line.num_rows += num_own;
  }
}

/// Once: clients send predictions to all servers.
void Service::tell_predictions(const Generation& generation) {
  if (!generation.has_prediction || engine_->options().speculation.method != "off") return;
  if (std::exchange(has_told_predictions_, true)) return;
  spdlog::info(
      "a request has a prediction, which is left out, as all that follow: the server does not "
      "speculate (--speculate)");
}

std::unique_ptr<Service::Rows> Service::submit(const Generation& generation) {
  if (const std::string reason = refusal(); !reason.empty()) throw unavailable(reason);
  check_room(generation);
  tell_predictions(generation);
  const auto count = std::ssize(generation.prompts) * generation.best_of;
  auto rows = std::make_unique<Rows>(*this);
  rows->events = std::make_shared<RowEvents>(
      network(), static_cast<size_t>(options_.stream_buffer), buffers_,
      [this](RequestId id, bool is_paused) { engine_->set_paused(id, is_paused); });
  rows->rows.reserve(static_cast<size_t>(count));
  for (const Request& request : generation.prompts) {
    // Counted before the engine knows them: whatever fails from here on, Rows ends them.
    const size_t first = rows->rows.size();
    for (int64_t i = 0; i < generation.best_of; ++i) {
      Rows::Row row{.adapter = adapter_of(request)};
      change(waiting_, row.adapter, 1);
      ++num_waiting_;
      rows->rows.push_back(std::move(row));
      std::string tenant = tenant_of(options_, request);
      if (tenant.empty()) continue;
      tenants_.add_waiting(tenant, request.tenant_weight);
      rows->rows.back().tenant = std::move(tenant);
    }
    std::vector<RequestId> ids;
    if (generation.best_of == 1) {
      ids.push_back(engine_->submit(request, rows->events));
    } else {
      ids = engine_->submit_each(request, sample_variants(generation.best_of), rows->events);
    }
    for (size_t i = 0; i < ids.size(); ++i) rows->rows[first + i].id = ids[i];
  }
  return rows;
}

std::string Service::refusal() const {
  if (!ended_by_.empty()) return ended_by_;
  return is_draining_ ? "the server is shutting down" : "";
}

Service::Rows::~Rows() {
  for (Row& row : rows) {
    if (row.has_ended) continue;
    service_.engine_->cancel(row.id);
    end(row);
  }
}

void Service::Rows::begin(Row& row) {
  if (row.has_begun) return;
  change(service_.running_, row.adapter, 1);  // before the rest, as memory may lack
  change(service_.waiting_, row.adapter, -1);
  if (!row.tenant.empty()) service_.tenants_.begin(row.tenant);
  row.has_begun = true;
  --service_.num_waiting_;
  ++service_.num_running_;
}

void Service::Rows::end(Row& row) {
  if (std::exchange(row.has_ended, true)) return;
  if (!row.tenant.empty()) service_.tenants_.end(row.tenant, row.has_begun);
  if (row.has_begun) {
    --service_.num_running_;
    change(service_.running_, row.adapter, -1);
  } else {
    --service_.num_waiting_;
    change(service_.waiting_, row.adapter, -1);
  }
}

boost::asio::awaitable<void> Service::fetch_adapters(ModelChoice& choice) {
  const SourceChoice& from = choice.from;
  check_fetches(from);
  for (const std::string& name : names_in(choice)) {
    if (fetched_ == nullptr || from.source == "local") break;
    if (!from.is_remote() && names_->knows(name)) continue;
    const std::optional<RemoteAdapter> adapter = fetched_->remote(name, from);
    if (adapter) choice.fetched[name] = co_await fetched_->get(*adapter);
  }
  if (!from.token.empty() && choice.fetched.empty()) {
    throw bad_request("api_token: no adapter of the request is fetched", "api_token");
  }
}

boost::asio::awaitable<std::pair<fetch::AdapterLease, std::string>> Service::fetch_adapter(
    std::string name, SourceChoice from) {
  check_fetches(from);
  const std::optional<RemoteAdapter> adapter = fetched_->remote(name, from);
  const fetch::AdapterLease lease = co_await fetched_->get(*adapter);
  co_return std::pair(lease, fetched_->path_of(*lease));
}

std::vector<FetchedName> Service::fetched_names() const {
  if (fetched_ == nullptr) return {};
  std::vector<FetchedName> names = fetched_->names();
  std::erase_if(names, [this](const FetchedName& each) {
    const AdapterState* const known = last_.find(each.known_as);
    return known == nullptr || !known->is_in_memory || names_->knows(each.name);
  });
  return names;
}

void Service::check_fetches(const SourceChoice& from) const {
  if (fetched_ != nullptr || (!from.is_remote() && from.token.empty())) return;
  throw bad_request("this server fetches no adapters; --adapter-source names where from",
                    from.is_remote() ? "adapter_source" : "api_token");
}

void Service::Rows::count(const Row& row, const Completion& answer) {
  service_.metrics().count_answer(answer, row.adapter);
  if (!row.tenant.empty()) service_.tenants_.count_tokens(row.tenant, answer);
}

Metrics::Now Service::now() const {
  Metrics::Now now = last_;
  if (fetched_ != nullptr) now.fetches = fetched_->counts();
  now.num_buffered_bytes = buffers_->num_bytes();
  now.num_given_up = buffers_->num_given_up();
  std::set<std::string> in_use;
  for (const auto* rows : {&running_, &waiting_}) {
    for (const auto& [name, count] : *rows) {
      if (name != app::kBaseName) in_use.insert(name);
    }
  }
  now.num_adapters_in_use = std::ssize(in_use);
  now.running_adapters = joined(running_);
  now.waiting_adapters = joined(waiting_);
  now.tenants = tenants_.shown();
  return now;
}

int64_t Service::rows_of(const std::string& adapter) const {
  const auto count = [&adapter](const std::map<std::string, int64_t>& rows) {
    const auto place = rows.find(adapter);
    return place == rows.end() ? 0 : place->second;
  };
  return count(waiting_) + count(running_);
}

boost::asio::awaitable<void> Service::refresh() {
  constexpr std::chrono::seconds kLongest{2};
  if (next_ == nullptr) next_ = std::make_shared<Report>(network_);
  const std::shared_ptr<Report> report = next_;
  const bool has_waiters = report->timer.expiry() > std::chrono::steady_clock::now();
  if (!has_waiters) report->timer.expires_after(kLongest);
  if (requested_ == nullptr) request_report();
  boost::system::error_code woken;
  if (!report->has_come) {
    co_await report->timer.async_wait(
        boost::asio::redirect_error(boost::asio::use_awaitable, woken));
  }
}

/// For all that wait for the next report, which is made after each of them has begun to wait.
void Service::request_report() {
  requested_ = std::exchange(next_, nullptr);
  try {
    engine_->look([this](const Engine& engine) {
      std::optional<Metrics::Now> now;
      try {
        now = {.load = engine.load(),
               .stats = engine.stats(),
               .adapters = engine.adapter_states(),
               .rows = engine.row_progress(Metrics::kMaxShownRows)};
        now->num_running = now->load.num_running;
        now->num_waiting = std::max<int64_t>(engine_->num_unfinished() - now->num_running, 0);
      } catch (const std::bad_alloc&) {  // the last report holds
        now.reset();
      }
      retry_for_memory([&] {
        boost::asio::post(network_, [this, now]() mutable {
          if (now) last_ = *std::move(now);
          requested_->has_come = true;
          requested_->timer.cancel();
          requested_ = nullptr;
          if (next_ != nullptr) request_report();
        });
      });
    });
  } catch (const std::
               exception&) {  // the engine is closed, or there is no memory: the last report holds
    requested_->has_come = true;
    requested_->timer.cancel();
    requested_ = nullptr;
  }
}

/// The wait for a call in another thread, which may refer to variables of the coroutine that waits.
/// Asio drops a coroutine where it finds no memory for its next wait: then the other thread is
/// waited for here, before those variables end.
struct Service::Waiting {
  explicit Waiting(boost::asio::io_context& network)
      : timer(network, boost::asio::steady_timer::time_point::max()) {}

  struct Guard {
    std::shared_ptr<Waiting> waiting{};
    ~Guard() {
      if (waiting) waiting->has_ended.wait(false);
    }
  };

  boost::asio::steady_timer timer;
  std::atomic<bool> has_ended = false;
  bool is_told = false;  // of the thread of the network
};

boost::asio::awaitable<void> Service::run(Task task) {
  const auto waiting = std::make_shared<Waiting>(network_);
  Done done = [this, waiting] {
    waiting->has_ended = true;
    waiting->has_ended.notify_all();
    retry_for_memory([&] {
      boost::asio::post(network_, [waiting] {
        waiting->is_told = true;
        waiting->timer.cancel();
      });
    });
  };
  task(std::move(done));
  const Waiting::Guard guard{waiting};
  boost::system::error_code cancelled;
  while (!waiting->is_told) {
    co_await waiting->timer.async_wait(
        boost::asio::redirect_error(boost::asio::use_awaitable, cancelled));
  }
}

}  // namespace heddle::serve
