"""E-mail over SMTP: irreversible, and nobody can be asked what became of it; see README.md."""

from tools.catalog.smtp_email.provider import smtp_provider
from tools.catalog.smtp_email.tool import SentEmail, email_tool

__all__ = ["SentEmail", "email_tool", "smtp_provider"]
