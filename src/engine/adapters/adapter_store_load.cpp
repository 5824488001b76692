// How AdapterStore reads adapters that are added, and their receipts.
#include <algorithm>
#include <exception>
#include <utility>

#include "heddle/core/error.h"

#include "engine/adapters/adapter_score.h"
#include "engine/adapters/adapter_store.h"
#include "engine/adapters/settled_read.h"
#include "files/safetensors.h"
#include "model/adapters/open_adapter.h"
#include "model/adapters/peft_adapter.h"

namespace heddle {
namespace {

/// The text of its configuration.
std::string config_of(const AdapterContent& content) {
  if (!content.config_json.empty()) return content.config_json;
  const files::SafetensorsFile file(content.safetensors, content.name);
  const auto found = file.metadata().find("adapter_config");
  HEDDLE_CHECK(found != file.metadata().end(), content.name,
               ": has no config: give it, or the text of adapter_config.json as adapter_config in "
               "the __metadata__ of the safetensors");
  return found->second;
}

/// One of heads alone has no tensors of sites.
bool is_untrained(const AdapterReceipt& receipt) {
  return receipt.is_zero && receipt.tensors_given > 0;
}

std::string zero_delta(const std::string& path) {
  return path + ": changes nothing, as before any training: at every site A or B is zero";
}

}  // namespace

/// What is known of an adapter without its weights and its text.
AdapterHold AdapterStore::describe(const std::string& path, const files::FolderBounds& bounds,
                                   const model::Adapter& opened) const {
  const model::DecoderConfig& config = files_.config();
  opened.check_fits(config.dims());
  const DeviceAdapters& device = std::as_const(runner_).adapters();
  const auto known = std::make_shared<KnownAdapter>();
  known->path = path;
  known->bounds = bounds;
  const model::StoredValues& vocabulary = opened.embedding().weight;
  known->num_tokens = vocabulary.is_present() ? vocabulary.rows : config.vocab_size;
  const model::StoredValues& head = opened.head().weight;
  known->num_logits = head.is_present() ? head.rows : config.vocab_size;
  known->num_bytes = device.num_bytes(opened);
  known->runs_alone = device.runs_alone(opened);
  known->invocation = opened.invocation_tokens();
  known->has_embedding = !opened.embedding().is_empty();
  known->score = score_head_of(opened, files_);
  known->has_host_copies = device.can_stage(opened);
  return known;
}

std::vector<std::string> AdapterStore::warnings_of(const model::Adapter& opened) const {
  std::vector<std::string> all = opened.warnings(files_.config().dims());
  const bool has_heads_alone = opened.heads() != nullptr && opened.num_tensors().given == 0;
  if (has_heads_alone && !std::as_const(runner_).adapters().uses_heads()) {
    all.push_back(opened.path() +
                  ": has Medusa heads alone, which draft with --speculate heads and do nothing "
                  "without");
  }
  return all;
}

RowText AdapterStore::text_of(const KnownAdapter& known) const {
  const Lock lock(tokenizers_mutex_);
  return text_of_adapter(text_of_model_, files_, model::FolderText(known.path, known.bounds),
                         tokenizers_);
}

AdapterStore::Prepared AdapterStore::stage(const std::string& given) const {
  const files::FolderBounds bounds = folders_.bounds_of(given);
  const std::string path = bounds.empty() ? model::find_adapter_path(given) : given;
  std::shared_ptr<model::Adapter> opened;
  AdapterHold known;
  (void)read_settled(path, [&] {
    opened = model::open_adapter(path, files_.config(), bounds);
    opened->load();
    std::as_const(runner_).adapters().load_heads(*opened);
    known = describe(path, bounds, *opened);
    known->text = text_of(*known);
  });
  return stage(opened, std::move(known));
}

AdapterStore::Prepared AdapterStore::stage(const AdapterContent& content) const {
  // The adapter reads bytes that the owner has.
  struct InMemory {
    InMemory(const AdapterContent& content, const model::ModelDims& dims)
        : owner(content.owner),
          adapter(config_of(content), content.safetensors, content.name, &dims) {}
    std::shared_ptr<const void> owner;
    model::PeftAdapter adapter;
  };
  const auto held = std::make_shared<InMemory>(content, files_.config().dims());
  AdapterHold known = describe(content.name, {}, held->adapter);
  known->given = std::shared_ptr<const model::Adapter>(held, &held->adapter);
  known->text = text_of_model_;
  return stage(known->given, known);
}

AdapterStore::Prepared AdapterStore::stage(const std::shared_ptr<const model::Adapter>& opened,
                                           AdapterHold known) const {
  AdapterInfo info{.name = {},
                   .folder = known->path,
                   .base_model = opened->base_model(),
                   .names_this_model = names_.may_be(opened->base_model()),
                   .warnings = warnings_of(*opened)};
  const DeviceAdapters& device = std::as_const(runner_).adapters();
  known->data =
      known->has_host_copies ? device.stage(*opened, take_spare()) : device.prepare(*opened);
  return {.known = std::move(known), .info = std::move(info), .opened = opened};
}

/// The receipt keeps what was opened until its norms are computed.
void AdapterStore::check(Prepared& staged) const {
  const std::shared_ptr<const model::Adapter> opened = std::exchange(staged.opened, nullptr);
  const DeviceAdapters& device = std::as_const(runner_).adapters();
  staged.identity = device.identify(*opened);
  KnownAdapter& known = *staged.known;
  known.content = staged.identity.digest;
  const std::shared_ptr<LoadedReceipt>& receipt = staged.identity.receipt;
  receipt->measure_by([&device, opened, &stop = norm_worker_.is_ending()] {
    return device.measure(*opened, stop);
  });
  known.receipt.set(receipt);
  AdapterInfo& info = staged.info;
  info.receipt = strict_ ? receipt->measured() : receipt->facts();
  if (is_untrained(info.receipt)) info.warnings.push_back(zero_delta(known.path));
  if (std::string odd = odd_norms(known.path, info.receipt); !odd.empty()) {
    info.warnings.push_back(odd);
  }
}

AdapterData AdapterStore::take_spare() const {
  const Lock lock(spare_mutex_);
  return std::exchange(spare_, {});
}

/// The pinned memory of one that was added is for the next that is prepared.
void AdapterStore::keep_spare(KnownAdapter& known) noexcept {
  if (!known.data.host) return;
  AdapterData used;
  used.host = std::exchange(known.data.host, std::nullopt);
  const Lock lock(spare_mutex_);
  spare_ = std::move(used);
}

void AdapterStore::begin_copy(Prepared& staged) {
  const AdapterHold& known = staged.known;
  if (known->failure) std::rethrow_exception(known->failure);
  if (known->data.stage() != AdapterStage::kStaged) return;
  make_room_for_added(*known);
  std::list<AdapterHold> copied{known};
  if (tiers_.begin_move(*known); known->failure) std::rethrow_exception(known->failure);
  copied_.splice(copied_.end(), copied);
  staged.copied = known->data.moving->arrived;
}

/// One for which there is room, once its copy is complete where that takes one.
void AdapterStore::make_resident(const Prepared& prepared) {
  KnownAdapter& known = *prepared.known;
  if (prepared.copied == nullptr) {
    tiers_.put(known);
  } else if (known.data.moving) {
    prepared.copied->wait();
    tiers_.poll();
  }
  if (known.failure) std::rethrow_exception(known.failure);
  keep_spare(known);
  known.data.set(prepared.identity);
}

/// Of those that begin_copy began with, and that no caller has any more; its copy ends first.
bool AdapterStore::drop_a_copy() {
  const auto is_dropped = [](const AdapterHold& known) { return known.use_count() == 1; };
  const auto dropped = std::ranges::find_if(copied_, is_dropped);
  if (dropped == copied_.end()) return false;
  if (const auto& moving = (*dropped)->data.moving) moving->arrived->wait();
  tiers_.poll();
  free_unused();
  return true;
}

/// Of weights of the folder's adapters.
void AdapterStore::report_read(const std::string& path, const AdapterReceipt& receipt) const {
  if (is_untrained(receipt)) {
    check_strict({zero_delta(path)});
    if (on_warning_) on_warning_(zero_delta(path));
  }
  if (on_receipt_) on_receipt_(path, receipt);
}

/// The norms of one that was added; warns where they are odd. With strict they are known.
void AdapterStore::measure_later(const KnownAdapter& known) noexcept {
  if (strict_) return;
  try {
    norm_worker_.measure(known.receipt.get(),
                         [on_warning = on_warning_, path = known.path](const AdapterReceipt& done) {
                           const std::string odd = odd_norms(path, done);
                           if (on_warning && !odd.empty()) on_warning(odd);
                         });
  } catch (const std::exception&) {  // they are computed when they are asked for
  }
}

std::optional<AdapterReceipt> AdapterStore::receipt(const std::string& name,
                                                    ReceiptNorms norms) const {
  const AdapterHold known = known_under(name);
  if (known == nullptr) throw UnknownAdapter("unknown adapter \"" + name + "\"");
  const std::shared_ptr<LoadedReceipt> receipt = known->receipt.get();
  if (receipt == nullptr) return std::nullopt;
  return norms == ReceiptNorms::kComputed ? receipt->measured() : receipt->now();
}

}  // namespace heddle
