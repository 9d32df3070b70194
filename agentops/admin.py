"""People: Django's own users and groups, in this admin's look.

Tokens, the audit and notifications have modules of their own beside this one.
"""

from typing import TYPE_CHECKING, Any

from django.contrib import admin
from django.contrib.auth.admin import GroupAdmin as DjangoGroupAdmin
from django.contrib.auth.admin import UserAdmin as DjangoUserAdmin
from django.contrib.auth.models import Group, User
from unfold.forms import AdminPasswordChangeForm, UserChangeForm, UserCreationForm

from agentops import admin_audit, admin_notifications, admin_tokens  # noqa: F401  register pages

if TYPE_CHECKING:
    # The same class with another look, and untyped.
    from django.contrib.admin import ModelAdmin

    BaseAdmin = ModelAdmin[Any]
    BaseUserAdmin = DjangoUserAdmin[User]
else:
    from unfold.admin import ModelAdmin as BaseAdmin

    class BaseUserAdmin(DjangoUserAdmin, BaseAdmin):
        pass


admin.site.unregister([User, Group])


@admin.register(User)
class UserAdmin(BaseUserAdmin):
    form = UserChangeForm
    add_form = UserCreationForm
    change_password_form = AdminPasswordChangeForm
    # The theme's bar for actions on many rows sets styles that the pages' policy refuses; users
    # and groups are deleted one by one, each on a page that says what goes with it.
    actions = None


@admin.register(Group)
class GroupAdmin(DjangoGroupAdmin, BaseAdmin):
    actions = None
