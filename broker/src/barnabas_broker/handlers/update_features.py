"""UpdateFeatures (57), v0 to v2: changes feature levels of the cluster, all or none (KIP-584).

v0 allows or forbids a downgrade; from v1 on the request has an upgrade type. Up to v1 each feature has a result of its
own.
"""

from typing import Any, Final

from barnabas_broker.handlers.answer_in_turns import AnswerInTurns
from barnabas_broker.handlers.channel import RequestContext
from barnabas_broker.handlers.handler_environment import HandlerEnvironment
from barnabas_broker.metadata.controller.decisions.update_features import (
    FeatureUpdate,
    UpgradeType,
    lowered,
)
from barnabas_broker.wire.messages import UpdateFeaturesRequest, UpdateFeaturesResponse
from barnabas_core.errors import ApiError, ErrorCode

Result = UpdateFeaturesResponse.UpdatableFeatureResult
KINDS: Final = {each.value: each for each in UpgradeType}


async def handle(
    environment: HandlerEnvironment, context: RequestContext, request: UpdateFeaturesRequest
) -> UpdateFeaturesResponse:
    """Change all feature levels, or none if there is an error; with validate_only, only check the changes."""
    answer = AnswerInTurns(UpdateFeaturesResponse, context, environment.answers)
    try:
        updates = [_update(context.api_version, each) async for each in answer.over(request.feature_updates)]
        lower = lowered(environment.image.features, updates)
        users = {feature: await environment.feature_users.find(feature) for feature in lower}
        await environment.metadata_writer.update_features(updates, users, validate_only=request.validate_only)
    except ApiError as error:
        return UpdateFeaturesResponse(error_code=error.code, error_message=error.message)
    results = [Result(feature=each.feature, error_message=None) async for each in answer.over(request.feature_updates)]
    return UpdateFeaturesResponse(error_message=None, results=results)


def _update(version: int, update: Any) -> FeatureUpdate:
    kind = UpgradeType.SAFE_DOWNGRADE if update.allow_downgrade else UpgradeType.UPGRADE
    if version >= 1:
        if update.upgrade_type not in KINDS:
            message = (
                f"upgrade type {update.upgrade_type} of {update.feature} is unknown; allowed are {list(KINDS)} "
                "(upgrade, safe downgrade, unsafe downgrade)"
            )
            raise ApiError(ErrorCode.INVALID_REQUEST, message)
        kind = KINDS[update.upgrade_type]
    return FeatureUpdate(update.feature, update.max_version_level, kind)
